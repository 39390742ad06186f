"""Baseline maps that do not depend on where the named object is, for grounding.

Each function takes captions and returns them with other weights, ready for `caption.analysis.pointing_game.ground`:

    ground(zip(uniform(captions), boxes))       equal weights
    ground(zip(random(captions), boxes))        random weights
    ground(zip(middle(captions), boxes))        always the middle cell: people put objects there
    ground(zip(centred(captions), boxes))       a Gaussian around the middle
    ground(zip(mean_map(captions), boxes))      the mean of the model's own maps, the same for every word and image
    ground(zip(other_word(captions), boxes))    the model's own maps, but of other words of the caption
    ground(zip(other_image(captions), boxes))   the model's own maps, but made for another image

Attention that scores above maps of other words looks at the right object at the right time; attention that scores above
maps of other images looks at this image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from caption.core.box import BoxLike, cell_centres, shares_of
from caption.data.box_faults import ANYWHERE, boxes_fault
from caption.data.boxes import Boxes
from caption.results.caption import Caption


def uniform(captions: Iterable[Caption]) -> list[Caption]:
    """α[t,i] = 1 / L."""
    return [_with_map(caption, np.ones_like(caption.weights)) for caption in captions]


def random(captions: Iterable[Caption], seed: int = 0) -> list[Caption]:
    """Random numbers, uniform from 0 to 1, scaled to the sum 1."""
    generator = np.random.default_rng(seed)
    return [_with_map(caption, generator.random(caption.weights.shape)) for caption in captions]


def middle(captions: Iterable[Caption]) -> list[Caption]:
    """All weight on the cell in the middle of the part that the model has seen, or on the two or four nearest ones."""

    def nearest(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        distance = np.abs(x) + np.abs(y)
        return np.isclose(distance, distance.min()).astype(float)

    return [_with_map(caption, _from_middle(caption, nearest)) for caption in captions]


def mean_map(captions: Iterable[Caption]) -> list[Caption]:
    """Every word gets the mean of all words' maps.

    Raises:
        ValueError: the captions' grids differ.
    """
    captions = list(captions)
    if len({caption.weights.shape[1:] for caption in captions}) > 1:
        raise ValueError("a mean of maps needs captions on one grid")
    maps = np.concatenate([caption.weights for caption in captions]) if captions else np.zeros((0, 1, 1))
    mean = maps.mean(0) if len(maps) else maps.sum(0)
    return [_with_map(caption, mean) for caption in captions]


def centred(captions: Iterable[Caption], sigma: float = 0.25) -> list[Caption]:
    """A Gaussian around the middle of the part that the model has seen, the same for every word.

    Args:
        captions: any.
        sigma: as a fraction of the width and height that the model has seen; `fit_sigma` takes it from training boxes.
    """
    if not sigma > 0:
        raise ValueError(f"sigma must be a positive fraction of the seen width and height, not {sigma}")
    return [
        _with_map(caption, _from_middle(caption, lambda x, y: np.exp(-(x**2 + y**2) / (2 * sigma**2))))
        for caption in captions
    ]


def fit_sigma(boxes: Iterable[tuple[Boxes, BoxLike]]) -> float:
    """The standard deviation, for `centred`, of the Gaussian that gives the objects' centres the highest likelihood.

    Args:
        boxes: for each image, its objects and the part of the image that the model sees, in the same pixels. Take
            them from training images: a baseline must not be fitted on the images measured.

    Returns:
        the root mean square distance from the middle, along x and y alike, as a fraction of width and height.

    Raises:
        ValueError: there are no objects, or a box is wrong (`caption.data.box_faults`).
    """
    images = list(boxes)
    if fault := boxes_fault(
        (f"image {number}", objects, ANYWHERE) for number, (objects, _) in enumerate(images)
    ):
        raise ValueError(fault)
    offsets = [
        offset
        for objects, (left, top, right, bottom) in images
        for several in objects.values()
        for x0, y0, x1, y1 in several
        for offset in (
            ((x0 + x1) / 2 - left) / (right - left) - 0.5,
            ((y0 + y1) / 2 - top) / (bottom - top) - 0.5,
        )
    ]
    if not offsets:
        raise ValueError("there are no objects to which the width of the centre prior could be fitted")
    return float(np.sqrt(np.mean(np.square(offsets))))


def other_word(captions: Iterable[Caption], seed: int = 0) -> list[Caption]:
    """Each word gets the map of another word of its caption, drawn at random; a single word keeps its own."""
    generator = np.random.default_rng(seed)
    return [
        _with_map(caption, caption.weights[other_steps(len(caption.words), generator)])
        for caption in captions
    ]


def other_steps(words: int, generator: np.random.Generator) -> np.ndarray:
    """(T,) int64 for each of T words the step of another word, drawn at random; a single word keeps its own."""
    if words < 2:
        return np.arange(words)
    return (np.arange(words) + generator.integers(1, words, size=words)) % words


def other_image(
    captions: Iterable[Caption], seed: int = 0, images: Sequence[int] | None = None
) -> list[Caption]:
    """Each caption gets the maps of another image's, word by word; if that has fewer words, its last map is repeated.

    Args:
        captions: any.
        seed: of the order in which images exchange their maps.
        images: the number of each caption's image, if images have several captions; the first caption of an image then
            gets the maps of the other image's first, and so on. None = each caption has its own image.

    Raises:
        ValueError: there are fewer than two images that have captions with words, or their grids differ.
    """
    captions = list(captions)
    by_image: dict[int, list[Caption]] = {}
    for image, caption in zip(range(len(captions)) if images is None else images, captions, strict=True):
        if len(caption.words):
            by_image.setdefault(image, []).append(caption)
    grids = {caption.weights.shape[1:] for group in by_image.values() for caption in group}
    if len(by_image) < 2 or len(grids) > 1:
        raise ValueError("exchanging maps needs captions with words of two or more images, on one grid")
    # A ring in random order: each image gets the maps of another, and gives its own once.
    numbers = list(by_image)
    order = np.random.default_rng(seed).permutation(len(numbers))
    donors = {
        id(caption): by_image[numbers[giver]][place % len(by_image[numbers[giver]])]
        for taker, giver in zip(order, np.roll(order, 1), strict=True)
        for place, caption in enumerate(by_image[numbers[taker]])
    }
    redrawn = []
    for caption in captions:
        donor = donors.get(id(caption), caption)
        steps = np.minimum(np.arange(len(caption.words)), max(len(donor.words) - 1, 0))
        redrawn.append(_with_map(caption, donor.weights[steps]))
    return redrawn


def _with_map(caption: Caption, maps: np.ndarray) -> Caption:
    """The caption with maps (T, rows, cols), or one (rows, cols) for all words, scaled to 1."""
    totals = maps.sum((-2, -1), keepdims=True)
    maps = maps / np.where(totals > 0, totals, 1)
    return caption.with_weights(np.broadcast_to(maps, caption.weights.shape))


def _from_middle(caption: Caption, function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> np.ndarray:
    """(rows, cols) a function of each cell's offset (x, y) from the middle of the seen part, in shares."""
    rows, cols = caption.weights.shape[1:]
    x, y = cell_centres(rows, cols, shares_of(caption.box, caption.seen or caption.box))
    return function(x[None, :] - 0.5, y[:, None] - 0.5)
