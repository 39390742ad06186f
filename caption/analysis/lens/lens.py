"""The lens: what the encoder sees where the decoder looks.

Many encoders were trained with a linear classifier on the average of their regions. Applied to the average that
attention takes, softmax(W Σ_i α_i a_i + b), it gives the classes of each word's context; applied to single regions, a
map of a class. With even weights it is the plain classifier. It is for captioners what the logit lens is for language
models: an early state, read by the last layer.

    captioner = caption.load("photos", lens=True)
    captioner("photo.jpg").lens.words

The classifier was trained on plain averages and is too sure where a map is sharp: `lens.calibration` fits probabilities
to the nouns that people name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from caption.attention.map_entropy import entropy
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.regions import Regions, Views, mean_region
from caption.data.photos import LARGEST_SIDE
from caption.encoders.base import Encoder
from caption.encoders.classifier import Classifier, classifier_of
from caption.encoders.several_encoders import SeveralEncoders
from caption.results.caption import Caption
from caption.results.lens_reading import Doubt, LensReading, Seen
from caption.text.nouns import GENERAL, Nouns, imagenet_nouns

if TYPE_CHECKING:
    from caption.data.photos import Photo

SURE = 0.5
"""Smallest probability of another thing with which the lens doubts a word."""
SHOWN = 3
"""Things per word."""
LEAST_IN_REGION = 0.5
"""Smallest softmax of a thing in some region with which it has a map: in photos without dogs, dogs reach 0.3."""
LEAST_SHARE = 0.8
"""A less general noun is named, retriever for dog, if it holds this share of the general one's probability."""


@dataclass(frozen=True)
class Calibration:
    """From the classifier's logits to the probability that people name a noun; see `lens.calibration.fit`.

    With x = logit of the noun's part of the softmax of the word's context, h = H[α] / log L, the entropy of the map in
    [0, 1], and s = logit of the noun's part of all classes, which is x for even probabilities (a hundred classes are
    dogs):

        p(noun) = σ(slope · x + of_entropy · h + slope_of_entropy · x · h + of_size · s + offset)

    For a map that is sharper than those of the fit, such as a single region, p = σ(slope · x + of_size · s + offset),
    fitted to single regions.

    Attributes:
        of_words: slope, of_entropy, slope_of_entropy, of_size and offset.
        of_regions: slope, of_size and offset for single regions.
        sharpest: h of the sharpest maps of the fit.
        doubtful: for words that are usually read correctly, the probability of their noun below which it is doubted.
        companions: for such words, and for "person", nouns that are also read where the word is correct.
        known: (N, D) directions of the mean regions of photos, as uint8, largest 255.
        neighbours: number of them with which a photo is compared.
        farthest: cosine distance from its neighbours above which a photo is unlike them.
        photos: number of photos of the fit.
        detail: pixels of the shorter side of these photos, their median.
    """

    of_words: tuple[float, ...]
    of_regions: tuple[float, ...] = (1.0, 0.0, 0.0)
    sharpest: float = 0.0
    doubtful: dict[str, float] = field(default_factory=dict)
    companions: dict[str, list[str]] = field(default_factory=dict)
    known: Tensor | None = None
    neighbours: int = 10
    farthest: float = 1.0
    photos: int = 0
    detail: int = LARGEST_SIDE

    def probabilities(self, context: Tensor, entropy: Tensor, membership: Tensor) -> Tensor:
        """Logits (..., T, C) of contexts, H[α] / log L (..., T), classes in nouns (C, N) -> (..., T, N)."""
        x = torch.logit((context.softmax(-1) @ membership).clamp(1e-6, 1 - 1e-6))
        h, s = entropy[..., None], sizes(membership)
        slope, of_entropy, slope_of_entropy, of_size, offset = self.of_words
        logit = slope * x + of_entropy * h + slope_of_entropy * x * h + of_size * s + offset
        slope, of_size, offset = self.of_regions
        return torch.sigmoid(torch.where(h < self.sharpest, slope * x + of_size * s + offset, logit))

    def distance(self, mean: Tensor) -> float:
        """Mean cosine distance of a mean region (D,) from those of the nearest photos of the fit."""
        assert self.known is not None
        directions = functional.normalize(self.known.float(), dim=1)
        similarities = directions @ functional.normalize(mean.float(), dim=0)
        nearest = similarities.topk(min(self.neighbours, len(similarities)))
        return 1 - float(nearest.values.mean())


def sizes(membership: Tensor) -> Tensor:
    """Logit (N,) of each noun's part of all classes, from the classes in nouns (C, N)."""
    return torch.logit((membership.sum(0) / len(membership)).clamp(1e-6, 1 - 1e-6))


class Lens:
    """Reads what the encoder sees in weighted averages of its regions.

    Args:
        classifier: for the regions of the encoder's first view.
        nouns: the nouns of its classes.
        calibration: None = probabilities are the classifier's own.
    """

    def __init__(
        self, classifier: Classifier, nouns: Nouns | None = None, calibration: Calibration | None = None
    ) -> None:
        self.classifier = classifier.eval().requires_grad_(False)
        self.nouns = nouns or imagenet_nouns()
        self.calibration = calibration
        self.captioner: Captioner | None = None
        """Encodes small copies of photos; None = photos are judged by their own regions alone."""
        count = classifier.linear.out_features
        if count != len(self.nouns.class_names):
            raise UserError(
                f"the encoder's classifier has {count:,} classes, and the lens has nouns for the "
                f"{len(self.nouns.class_names):,} of ImageNet: give Lens a table of nouns"
            )
        places = {noun: place for place, noun in enumerate(self.nouns.names)}
        self.membership = torch.zeros(count, len(places))
        """(C, N) 1 where a class is a kind of the noun."""
        for number, noun in enumerate(self.nouns.class_nouns):
            self.membership[number, [places[general] for general in self.nouns.chain(noun)]] = 1
        self.places = places
        self._specific = [place for noun, place in places.items() if noun not in GENERAL]

    @torch.no_grad()
    def logits(self, regions: Regions, weights: Tensor | np.ndarray | None = None) -> Tensor:
        """Logits (B, T, C) of the classes of Σ_i α_i a_i; only α depends on a decoder.

        Args:
            regions: of the encoder, before any refiner; from a photo or from a store.
            weights: (B, T, L) or (B, T, rows, cols), of any mechanism, masked or forced; each map is divided by its sum
                (a sentinel has no regions to read). None = even weights over the real regions, T = 1.

        Raises:
            UserError: the maps are not on the regions' grid, or are negative.
        """
        vectors = regions.vectors.float()
        if weights is None:
            return self.classifier(mean_region(regions._replace(vectors=vectors)))
        return self.classifier(_even_sum(torch.as_tensor(weights), regions) @ vectors)

    def classes(self, regions: Regions, weights: Tensor | np.ndarray | None = None) -> Tensor:
        """(B, T, C) softmax of `logits`, not calibrated."""
        return self.logits(regions, weights).softmax(-1)

    def map_of(self, regions: Regions, thing: str) -> Tensor:
        """(B, rows, cols): the softmax of a class, or of all classes of a noun, in each single region.

        Raises:
            UserError: no class or noun has this name.
        """
        by_region = self.classifier(regions.vectors.float()).softmax(-1)
        classes = [
            number for number, name in enumerate(self.nouns.class_names) if name.lower() == thing.lower()
        ]
        nouns = [self.places[noun] for noun in self.nouns.of_word(thing)]
        if not classes and not nouns:
            raise UserError(
                f"the lens does not know {thing!r}: name a class of ImageNet or a noun of its table, such as dog"
            )
        chosen = self.membership[:, nouns].amax(1) if nouns else torch.zeros(len(self.membership))
        chosen[classes] = 1
        return (by_region @ chosen).view(-1, *regions.grid)

    def probabilities(self, regions: Regions, weights: Tensor | np.ndarray | None = None) -> Tensor:
        """(B, T, N) the probability of each noun at each map, calibrated if the lens is; see `logits`."""
        logits = self.logits(regions, weights)
        if self.calibration is None:
            return logits.softmax(-1) @ self.membership
        real = regions.vectors.shape[1] if regions.mask is None else regions.mask.sum(1, keepdim=True)
        if weights is None:
            entropies = torch.ones(logits.shape[:2])
        else:
            even = _even_sum(torch.as_tensor(weights), regions)
            entropies = entropy(even) / torch.as_tensor(real).clamp(min=2).log()
        return self.calibration.probabilities(logits, entropies, self.membership)

    def where(self, views: Views, thing: str) -> np.ndarray:
        """(rows, cols): the probability of a thing in each single region of one photo, not calibrated; see `map_of`.

        Raises:
            UserError: no class or noun has this name, or the encoder sees it in no region.
        """
        regions = views[0]._replace(vectors=views[0].vectors.cpu())
        map_ = self.map_of(regions, thing)[0].numpy()
        if map_.max() < LEAST_IN_REGION:
            raise UserError(
                f"the encoder sees no {thing} in this photo: the highest probability in a region is {map_.max():.2g}"
            )
        return map_

    def regions_alone(self, regions: Regions) -> list[list[Seen]]:
        """The likeliest thing in each single region of one photo, in rows; see `things`."""
        count = regions.vectors.shape[1]
        probabilities = self.probabilities(regions, torch.eye(count)[None])[0]
        specific = torch.tensor(self._specific)
        nouns = [self.nouns.names[place] for place in specific[probabilities[:, specific].argmax(1)].tolist()]
        things = [
            self._seen(self._less_general(noun, p), p) for noun, p in zip(nouns, probabilities, strict=True)
        ]
        return [things[start : start + regions.grid[1]] for start in range(0, count, regions.grid[1])]

    def read(self, views: Views, captions: Sequence[Caption]) -> list[LensReading]:
        """The readings of captions, one of each image.

        Args:
            views: of the encoder, the first of which is read.
            captions: with weights over this view's grid. If hard attention has chosen a region, that region is read.

        Raises:
            UserError: the weights of a caption are on another grid, or may be negative.
        """
        readings = []
        for index, caption in enumerate(captions):
            regions = regions_of(views, index)
            readings.append(self.read_words(self.read_photo(regions, caption.image), regions, caption))
        return readings

    def read_photo(self, regions: Regions, photo: Photo | None = None) -> LensReading:
        """The reading of a photo from its regions (1, L, D), without words."""
        return LensReading(
            [],
            [],
            self.things(self.probabilities(regions)[0, 0]),
            [],
            self.out_of_distribution(regions, photo),
            self.calibration is not None,
            self.regions_alone(regions),
        )

    def read_words(self, photo: LensReading, regions: Regions, caption: Caption) -> LensReading:
        """The reading of a photo and of the words of a caption; see `read`.

        Args:
            photo: from `read_photo`.
            regions: (1, L, D) of the photo.
            caption: of the photo.
        """
        weights = torch.from_numpy(read_weights(caption))[None]
        probabilities = self.probabilities(regions, weights)[0]
        return replace(
            photo,
            words=[self.things(p) for p in probabilities],
            classes=[self._classes(p) for p in self.classes(regions, weights)[0]],
            doubts=self.doubts(caption.words, probabilities),
        )

    def out_of_distribution(self, regions: Regions, photo: Photo | None = None) -> bool | None:
        """Whether a photo is unlike those that the lens was calibrated on; None if that is not known.

        Sharpness moves a mean region as far as another subject does. A photo is therefore unlike them only if a copy
        with as little detail as theirs is unlike them, too.

        Args:
            regions: (1, L, D) of the photo.
            photo: None = only these regions are judged.

        Raises:
            caption.core.errors.ImageError: the photo cannot be read.
        """
        if self.calibration is None or self.calibration.known is None:
            return None
        far = self._is_far(regions)
        if far and photo is not None and self.captioner is not None:
            transform = self.captioner.transform
            share = min(1.0, self.calibration.detail / min(transform.height, transform.width))
            size = round(share * transform.height), round(share * transform.width)
            reduced = replace(
                transform, size=size, resize=transform.resize and round(share * transform.resize)
            )
            far = self._is_far(regions_of(self.captioner.encode([reduced.read(photo).pixels]), 0))
        return far

    def _is_far(self, regions: Regions) -> bool:
        """Whether the mean region is far from those of the calibration."""
        assert self.calibration is not None
        mean = mean_region(regions._replace(vectors=regions.vectors.float()))[0, 0]
        return self.calibration.distance(mean) > self.calibration.farthest

    def things(self, probabilities: Tensor, count: int = SHOWN) -> list[Seen]:
        """The likeliest nouns of (N,), without kinds of each other and without `GENERAL` nouns."""
        likeliest: list[Seen] = []
        numbers = probabilities.tolist()
        for place in sorted(self._specific, key=lambda place: -numbers[place]):
            noun = self.nouns.names[place]
            if any(self.nouns.related(noun, thing.noun) for thing in likeliest):
                continue
            likeliest.append(self._seen(self._less_general(noun, probabilities), probabilities))
            if len(likeliest) == count:
                break
        return likeliest

    def _seen(self, noun: str, probabilities: Tensor) -> Seen:
        return Seen(noun, float(probabilities[self.places[noun]]))

    def _less_general(self, noun: str, probabilities: Tensor) -> str:
        """The least general kind of a noun that holds most of its probability, of those in (N,): retriever for dog."""
        least = LEAST_SHARE * float(probabilities[self.places[noun]])
        below = [kind for kind in self.nouns.below(noun) if float(probabilities[self.places[kind]]) >= least]
        return max(below, key=lambda kind: len(self.nouns.chain(kind)))

    def _classes(self, probabilities: Tensor) -> list[tuple[str, float]]:
        top = probabilities.topk(min(SHOWN, len(probabilities)))
        return [(self.nouns.class_names[c], float(p)) for p, c in zip(top.values, top.indices, strict=True)]

    def doubts(self, words: Sequence[str], probabilities: Tensor) -> list[Doubt]:
        """The words of a caption at which another thing is seen, from the probabilities (T, N)."""
        if self.calibration is None:
            return []
        doubts = []
        for step, word in enumerate(words):
            nouns = self.nouns.of_word(word)
            thing = self.things(probabilities[step], 1)[0]
            if (
                not nouns
                or thing.probability < SURE
                or any(self.nouns.related(thing.noun, noun) for noun in nouns)
            ):
                continue
            is_person = "person" in nouns
            key = "person" if is_person else word.lower()
            if not {*self.nouns.chain(thing.noun)}.isdisjoint(self.calibration.companions.get(key, [])):
                continue
            if is_person:  # hardly any class is a person; many are clothes and things that people carry
                doubted = not {"animal", "food"}.isdisjoint(self.nouns.chain(thing.noun))
            else:
                p = max(float(probabilities[step, self.places[noun]]) for noun in nouns)
                doubted = p < self.calibration.doubtful.get(key, 0.0)
            if doubted:
                doubts.append(Doubt(step, word, thing.noun, thing.probability))
        return doubts


def lens_of(captioner: Captioner) -> Lens | None:
    """The lens of a captioner, if it has one."""
    return captioner.lens if isinstance(captioner.lens, Lens) else None


def read_weights(caption: Caption) -> np.ndarray:
    """(T, rows, cols): the weights with which regions were read; 1 at the region that hard attention has chosen."""
    if caption.maps.locations is None:
        return caption.weights
    steps, rows, cols = caption.weights.shape
    chosen = np.zeros((steps, rows, cols), np.float32)
    chosen[np.arange(steps), caption.maps.locations[:, 0], caption.maps.locations[:, 1]] = 1
    return chosen


def regions_of(views: Views, index: int) -> Regions:
    """(1, L, D) the regions of one image in the first view, on the CPU."""
    vectors, grid, mask = views[0]
    part = slice(index, index + 1)
    return Regions(vectors[part].cpu(), grid, None if mask is None else mask[part].cpu())


def make_lens(captioner: Captioner) -> Lens:
    """The lens of a captioner, not calibrated, with the classifier of its encoder's pretrained weights.

    Raises:
        UserError: the encoder has no classifier that reads the average of its regions; see `classifier_of`.
    """
    transform = captioner.transform
    classifier = classifier_of(first_encoder(captioner), transform.height, transform.width)
    return Lens(classifier)


def first_encoder(captioner: Captioner) -> Encoder:
    """The encoder of the first view, whose regions a lens reads."""
    encoder = captioner.encoder
    return encoder.encoders[0] if isinstance(encoder, SeveralEncoders) else encoder


def _even_sum(weights: Tensor, regions: Regions) -> Tensor:
    """Maps (B, T, L) whose sums are 1."""
    count = regions.vectors.shape[1]
    grid = tuple(weights.shape[2:])
    if grid not in ((count,), tuple(regions.grid)):
        shown = "x".join(map(str, grid))
        raise UserError(
            f"these weights are on {shown} regions, but the encoder's have a grid of {regions.grid[0]}x"
            f"{regions.grid[1]}: the lens reads the encoder's own regions, not those that a refiner or another view has"
        )
    flat = weights.float().flatten(2)
    if bool((flat < 0).any()):
        raise UserError(
            "these weights are negative in places, so that they take no average that a lens could read"
        )
    return flat / flat.sum(-1, keepdim=True).clamp(min=1e-8)
