"""The result of captioning one image: the sentence, the attention weights behind each word, figures and files.

A result does not need a model: it can be pickled, stored and drawn without a checkpoint. Importing this module loads
neither PyTorch nor Matplotlib; methods that draw or write import what they need.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from caption.core.box import Box
from caption.core.errors import ImageError, optional_package
from caption.core.regions import WeightProperties
from caption.data.box_faults import ANYWHERE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from caption.core.runtime.atomic_files import Opener
    from caption.data.boxes import Boxes
    from caption.data.photos import Photo
    from caption.results.beam_tree import BeamTree
    from caption.results.lens_reading import LensReading
    from caption.visualize.styles import StyleName
    from caption.visualize.words import Words

WORD_COLUMNS = ["image", "photo", "step", "word", "log_prob", "gate", "peak", "row", "column"]
CELL_COLUMNS = ["image", "photo", "step", "word", "row", "column", "weight"]
"""Of data frames, see `Captions.to_frame`."""


@dataclass(eq=False)
class AttentionMaps(Mapping[str, np.ndarray]):
    """The maps behind the summary α of a caption with T words, by name, and the places that attention chose.

    Attributes:
        by_name: all maps of the mechanism, (T, *structure, rows, cols) float32, such as "heads" (T, M, rows, cols).
            Each has its own grid.
        boxes: the part of the image that each map covers, by name, where it is not `Caption.box`.
        locations: (T, 2) int64 row and column of the region chosen by hard attention, or None.
        points: (T, 2) float32 x and y of the attended point, in pixels of the original image, for a mechanism that
            chooses a point; else None.
    """

    by_name: dict[str, np.ndarray] = field(default_factory=dict)
    boxes: dict[str, tuple[float, float, float, float]] = field(default_factory=dict)
    locations: np.ndarray | None = None
    points: np.ndarray | None = None

    def __getitem__(self, name: str) -> np.ndarray:
        return self.by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_name)

    def __len__(self) -> int:
        return len(self.by_name)

    def checked(self, shape: tuple[int, int, int]) -> AttentionMaps:
        """The same, converted and copied, for weights of a shape (T, rows, cols).

        Raises:
            ValueError: lengths and shapes disagree, or a number is not finite.
        """
        maps = {str(name): _weights(f"map {name!r}", map_, shape[0]) for name, map_ in self.by_name.items()}
        boxes = {str(name): _box(f"box of {name!r}", box) for name, box in self.boxes.items()}
        points = None if self.points is None else _per_word("points", self.points, shape[0], 2)
        if points is not None and not np.isfinite(points).all():
            raise ValueError("points must be finite numbers")
        locations = None if self.locations is None else _locations(self.locations, shape)
        return AttentionMaps(maps, boxes, locations, points)


@dataclass(eq=False, repr=False)
class Caption:
    """A caption of one image, with the attention for every word.

    It has T words, without the end token, and a grid of rows x cols regions. Arrays are converted and copied. Lengths
    and shapes that disagree raise ValueError.

    Attributes:
        text: the sentence.
        words: its T tokens.
        weights: (T, rows, cols) float32, α of each word: the model attended with `weights[t]` to emit `words[t]`. For a
            mechanism with several maps, this is their summary.
        log_prob: natural logarithm of the probability of the whole sentence, end token included.
        word_log_probs: (T,) natural log-probability of each word given those before it. Their sum is
            `log_prob` less the end token's share.
        box: (left, top, right, bottom), the part of the original image that the grid covers, in that image's pixels
            counted from its upper left corner; whole numbers are edges of pixels. The receptive field of a region is
            centred on its cell. The box extends beyond the image if the transform padded it, and may begin or end
            beside the image by up to a cell, because of the encoder's padding (`caption.encoders.grid_boxes`).
        gates: (T,) β of each word (section 4.2.1 of Xu et al. 2015), or None for a model without a gate.
        finished: False if the search stopped before the end token.
        image: the photo itself or its path; EXIF orientation is applied when it is opened.
        alternatives: the other captions of the search, best first, without this one.
        maps: all maps of the mechanism by name, such as `maps["heads"]`, and the places that it chose.
        properties: of `weights`.
        likeliest: for each of the T words, the likeliest words at its step with their natural log-probabilities, most
            likely first; "(end)" is the end of the sentence. None if they were not kept.
        seen: the part of the original image that the model has seen, in the form of `box`; None = `box`.
        lens: what the encoder sees behind each word, if the captioner has a lens (`caption.load(..., lens=True)`).
        beam_tree: the hypotheses that a beam search kept at each step, if requested (`Captioner.describe`).
        by_piece: the same caption with a word for each piece, if the model writes words in several pieces; else None.
        self_attention: (M, T, T) float32 of each layer of a Transformer decoder, if it was measured
            (`caption.analysis.word_maps`): the weight of the step that predicts word t (second index) on each word fed
            so far (third index), the first of which is the start token.
        method: the method of `caption.maps` whose map the weights are; "" = they are the model's attention.
    """

    text: str
    words: list[str]
    weights: np.ndarray
    log_prob: float
    word_log_probs: np.ndarray
    box: tuple[float, float, float, float]
    gates: np.ndarray | None = None
    finished: bool = True
    image: Photo | None = None
    alternatives: list[Caption] = field(default_factory=list)
    maps: AttentionMaps = field(default_factory=AttentionMaps)
    properties: WeightProperties = field(default_factory=WeightProperties)
    likeliest: list[list[tuple[str, float]]] | None = None
    seen: tuple[float, float, float, float] | None = None
    lens: LensReading | None = None
    beam_tree: BeamTree | None = None
    by_piece: Caption | None = None
    self_attention: tuple[np.ndarray, ...] = ()
    method: str = ""

    def __post_init__(self) -> None:
        self.words = [str(word) for word in self.words]
        steps = len(self.words)
        self.weights = _weights("weights", self.weights, steps)
        if self.weights.ndim != 3:
            raise ValueError(f"weights must be (words, rows, cols), not {self.weights.shape}")
        self.log_prob = float(self.log_prob)
        self.word_log_probs = _per_word("word_log_probs", self.word_log_probs, steps)
        self.box = _box("box", self.box)
        self.seen = None if self.seen is None else _box("seen", self.seen)
        if self.gates is not None:
            self.gates = _per_word("gates", self.gates, steps)
        self.finished = bool(self.finished)
        self.alternatives = list(self.alternatives)
        self.maps = self.maps.checked(self.weights.shape)
        self.properties = WeightProperties(*map(bool, self.properties))
        self.self_attention = tuple(np.array(layer, np.float32) for layer in self.self_attention)
        if any(layer.shape[1:] != (steps, steps) for layer in self.self_attention):
            shapes = [layer.shape for layer in self.self_attention]
            raise ValueError(f"self_attention must be (heads, {steps}, {steps}) in each layer, not {shapes}")
        if self.likeliest is not None and len(self.likeliest) != steps:
            raise ValueError(f"likeliest must hold the words of {steps} steps, not of {len(self.likeliest)}")

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        steps, rows, cols = self.weights.shape
        unfinished = "" if self.finished else ", unfinished"
        # Adding 0 turns −0.0 into 0.0.
        facts = f"{steps} words on {rows}x{cols}, log p {round(self.log_prob, 2) + 0.0:.2f}{unfinished}"
        return f"Caption({self.text!r}, {facts})"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the image, weights and their method, self-attention and the beam's tree, in types that
        `json.dumps` accepts.

        `maps` are given by their shapes.

        Numbers that JSON cannot write (NaN, infinities) become None.
        """
        return {
            "text": self.text,
            "words": list(self.words),
            "log_prob": json_number(self.log_prob),
            "word_log_probs": [json_number(value) for value in self.word_log_probs],
            "gates": None if self.gates is None else [json_number(value) for value in self.gates],
            "finished": self.finished,
            "box": list(self.box),
            "seen": list(self.seen or self.box),
            "grid": list(self.weights.shape[1:]),
            "locations": None if self.maps.locations is None else self.maps.locations.tolist(),
            "maps": {name: list(maps.shape) for name, maps in self.maps.items()},
            "map_boxes": {name: list(box) for name, box in self.maps.boxes.items()},
            "points": None if self.maps.points is None else self.maps.points.tolist(),
            "properties": self.properties._asdict(),
            "likeliest": self.likeliest
            and [[[word, json_number(log_prob)] for word, log_prob in step] for step in self.likeliest],
            "lens": self.lens and self.lens.to_dict(),
            "alternatives": [caption.to_dict() for caption in self.alternatives],
        }

    @property
    def extent(self) -> Box:
        """Where boxes of objects may lie, in pixels: the photo, and what the model has seen around it.

        `ANYWHERE` if the caption has no photo that can be opened.
        """
        from caption.data.photos import upright_size

        left, top, right, bottom = self.seen or self.box
        try:
            width, height = upright_size(self._photo(None))
        except (ValueError, ImageError):
            return ANYWHERE
        return Box(min(left, 0), min(top, 0), max(right, width), max(bottom, height))

    @property
    def stepwise(self) -> Caption:
        """The caption with a word for each step of the model: itself, unless the model writes words in pieces."""
        return self if self.by_piece is None else self.by_piece

    @property
    def remarks(self) -> list[str]:
        """Sentences of the lens about the caption, see `LensReading.remarks`; none without a lens."""
        return [] if self.lens is None else self.lens.remarks

    @property
    def symbol(self) -> str:
        """What pictures call a weight: α for the model's attention, w for the map of another method."""
        return "w" if self.method else "α"

    @property
    def sentinel_shares(self) -> np.ndarray | None:
        """(T,) the sentinel's share of each word's attention, 1 − Σ α; None without a sentinel."""
        return 1 - self.weights.sum(axis=(1, 2)) if self.properties.sentinel else None

    def with_map(self, name: str, index: int | tuple[int, ...] | None = None) -> Caption:
        """The same caption with one of its maps as `weights`, so that figures show this map.

        Args:
            name: a key of `maps`.
            index: index of the head, hop, ... in the map's structure, from 0; None if it has no structure.

        Returns:
            a caption without `maps` and `alternatives`. It keeps `locations` if the map has the grid of `weights`.
            `sums_to_one` is measured from the weights. `sentinel` is False, because the sentinel's share of a single
            map is unknown.

        Raises:
            ValueError: there is no such map.
        """
        if name not in self.maps:
            raise ValueError(f"this caption has no map {name!r}: it has {', '.join(self.maps) or 'none'}")
        weights = self.maps[name]
        structure = weights.shape[1:-2]
        position = () if index is None else tuple(np.atleast_1d(index).tolist())
        if len(position) != len(structure) or not all(
            0 <= i < n for i, n in zip(position, structure, strict=True)
        ):
            expected = f"below {structure}" if structure else "None"
            raise ValueError(f"map {name!r} has no index {index}: give an index {expected}")
        selection = (slice(None), *position)
        weights = weights[selection]
        sums_to_one = np.allclose(weights.sum(axis=(1, 2)), 1, atol=1e-3)
        locations = self.maps.locations if weights.shape == self.weights.shape else None
        return replace(
            self.with_weights(weights, self.properties._replace(sums_to_one=sums_to_one, sentinel=False)),
            maps=AttentionMaps(locations=locations, points=self.maps.points),
            box=self.maps.boxes.get(name, self.box),
            seen=self.seen or self.box,
        )

    def with_weights(self, weights: np.ndarray, properties: WeightProperties | None = None) -> Caption:
        """The same caption with other weights, and without all that belongs to its own.

        Args:
            weights: (T, rows, cols).
            properties: of these weights; None = those of the caption's own.
        """
        return replace(
            self, weights=weights, properties=properties or self.properties,
            maps=AttentionMaps(), alternatives=[], lens=None, beam_tree=None, by_piece=None, method="",
        )  # fmt: skip

    def single_maps(self, name: str | None = None) -> dict[str, Caption]:
        """All single maps, or those of `name`, as captions from `with_map`, by labels such as "heads[2]".

        Raises:
            ValueError: there is no such map.
        """
        if name is not None and name not in self.maps:
            self.with_map(name)  # raises with a list of the maps
        return {
            map_label(key, position): self.with_map(key, position)
            for key in (self.maps if name is None else [name])
            for position in np.ndindex(self.maps[key].shape[1:-2])
        }

    def plot(
        self,
        image: Photo | None = None,
        *,
        words: Words | None = None,
        map: str | None = None,
        index: int | tuple[int, ...] | None = None,
        style: StyleName = "heat",
        smooth: bool | None = None,
        cmap: str | Colormap | None = None,
        opacity: float | None = None,
        rows: int | None = None,
        columns: int | None = None,
        title: bool = True,
        legend: bool = True,
        boxes: Boxes | None = None,
        own_scale: bool = False,
        fig: Figure | None = None,
        ax: Axes | None = None,
    ) -> Figure:
        """The paper's figure: the photo, then one panel per word (`caption.visualize.plot_caption`).

        Args:
            image: the photo to draw over; by default the caption's own.
            words: draw only these: "man", ["man", "camera"], places counted from 0, or a number of words that name
                things.
            map, index: draw a single map, such as `map="heads", index=2`, in place of `weights`.
            style: "heat", "paper", "glow" or "cells".
            smooth: interpolate between the cells; by default as the style does.
            cmap: Matplotlib's colours, such as "viridis", in place of the style's.
            opacity: of the colours, 0 to 1; by default the style's.
            rows, columns: of panels.
            title: write the sentence above the panels.
            legend: state the scale, and each word's numbers, below the panels.
            boxes: of objects by name, in the photo's pixels, to be drawn where the caption names the object.
            own_scale: give each word a scale of its own, as in the authors' notebook.
            fig: a figure to draw on, instead of a new one.
            ax: a panel of another figure, for the map of one word, which `words` names.

        Raises:
            ValueError: neither the call nor the caption has a photo, or there is no such map or word; there are several
                words for `ax`.
            caption.core.errors.ImageError: the photo cannot be opened.
        """
        from caption.visualize.figure import plot_caption, plot_word
        from caption.visualize.words import steps_of

        if ax is not None:
            if len(steps := steps_of(self, words)) != 1:
                raise ValueError(
                    f"ax is one panel, and there are {len(steps)} words to draw: name one, such as words=[0]; fig= is "
                    "for all"
                )
            return plot_word(
                self, self._photo(image), steps[0], ax, map=map, index=index, boxes=boxes, own_scale=own_scale,
                style=style, smooth=smooth, cmap=cmap, opacity=opacity,
            )  # fmt: skip
        return plot_caption(
            self, self._photo(image), fig, words=words, map=map, index=index, rows=rows, columns=columns, title=title,
            legend=legend, boxes=boxes, own_scale=own_scale, style=style, smooth=smooth, cmap=cmap, opacity=opacity,
        )  # fmt: skip

    def plot_word(self, word: str | int, image: Photo | None = None, **options: Any) -> Figure:
        """The map of one word over the photo and nothing else (`caption.visualize.plot_word`, to which options go).

        Raises:
            ValueError: neither the call nor the caption has a photo, or there is no such word.
            caption.core.errors.ImageError: the photo cannot be opened.
        """
        from caption.visualize.figure import plot_word

        return plot_word(self, self._photo(image), word, **options)

    def plot_matrix(self) -> Figure:
        """The alignment matrix, words × regions, and the self-attention of words (`caption.visualize.plot_matrix`).

        Raises:
            ValueError: the caption has no words.
        """
        from caption.visualize.matrix import plot_matrix

        return plot_matrix(self)

    def save_animation(
        self, path: str | os.PathLike[str], image: Photo | None = None, **options: Any
    ) -> None:
        """Write the caption word by word, as .gif, .webp or .mp4 (`caption.visualize.save_animation`).

        Raises:
            ValueError: neither the call nor the caption has a photo.
            UserError: an .mp4 needs ffmpeg, or the file cannot be written.
            caption.core.errors.ImageError: the photo cannot be opened.
        """
        from caption.visualize.animation import save_animation

        save_animation(self, self._photo(image), path, **options)

    def to_frame(self, by: Literal["word", "cells"] = "word") -> DataFrame:
        """The caption as a pandas DataFrame, with a row for each word, or for each cell of each word's map.

        The columns are those of `Captions.to_frame`.

        Raises:
            UserError: pandas is not installed.
            ValueError: `by` is something else.
        """
        if by not in ("word", "cells"):
            raise ValueError(f'by is "word" or "cells", not {by!r}')
        with optional_package("to_frame()", "pandas"):
            import pandas
        rows, columns = (word_rows, WORD_COLUMNS) if by == "word" else (cell_rows, CELL_COLUMNS)
        return pandas.DataFrame(rows(self, 0), columns=columns)

    def to_html(self, image: Photo | None = None, title: str | None = None, **options: Any) -> str:
        """A complete interactive page, which shows a word's weights under the pointer (`caption.visualize.to_html`).

        Args:
            image: the photo; by default the caption's own.
            title: plain text above the photo; by default the sentence.
            options: passed on to `to_html`, such as `style="paper"`.

        Raises:
            ValueError: neither the call nor the caption has a photo.
            caption.core.errors.ImageError: the photo cannot be opened.
        """
        from caption.visualize.page import to_html

        photo = self._photo(image)
        return to_html([self], str(self) if title is None else title, images=[photo], **options)

    def _repr_html_(self) -> str | None:
        """The page's content for a notebook; None without a photo, so that the notebook prints `repr`."""
        from caption.visualize.page import to_fragment

        return None if self.image is None else to_fragment([self])

    def save_attention(self, path: str | os.PathLike[str], opener: Opener | None = None) -> None:
        """Write the attention as an `.npz`, loadable without pickle.

        Arrays: `words` (T,) unicode, without the end token; `weights` (T, rows, cols) float32; `gates` (T,)
        float32, NaN throughout for a model without a gate; `box` (4,) float64; `map_NAME` float32 for each of `maps`;
        `points` (T, 2) float32 if there are any; `seen` and `map_box_NAME` (4,) float64 where they are not `box`.

        Args:
            path: the file.
            opener: which file of that name may be replaced, see `caption.core.runtime.atomic_files`; None = any.

        Raises:
            OutputError: the file cannot be written.
        """
        from caption.core.runtime.atomic_files import MARK, replacing

        arrays: dict[str, Any] = {
            "words": np.array(self.words, dtype=np.str_),
            "weights": self.weights,
            "gates": np.full(len(self.words), np.nan, np.float32) if self.gates is None else self.gates,
            "box": np.array(self.box),
            **{f"map_{name}": maps for name, maps in self.maps.items()},
            **{f"map_box_{name}": np.array(box) for name, box in self.maps.boxes.items()},
            **({} if self.seen in (None, self.box) else {"seen": np.array(self.seen)}),
            **({} if self.maps.points is None else {"points": self.maps.points}),
        }
        file = io.BytesIO()
        np.savez(file, **arrays)
        with zipfile.ZipFile(file, "a") as archive:
            archive.comment = MARK.encode()
        with (opener or replacing)(path) as output:
            output.write(file.getvalue())

    def _photo(self, image: Photo | None) -> Photo:
        photo = self.image if image is None else image
        if photo is None:
            raise ValueError("this caption has no photo: pass it as image=")
        return photo


def word_rows(caption: Caption, index: int) -> list[dict[str, Any]]:
    """The rows of a caption with `WORD_COLUMNS`, see `Captions.to_frame`; `index` is that of its photo."""
    rows = []
    for step, word in enumerate(caption.words):
        weights = caption.weights[step]
        row, column = np.unravel_index(np.abs(weights).argmax(), weights.shape)
        rows.append(
            {
                "image": photo_path(caption),
                "photo": index,
                "step": step,
                "word": word,
                "log_prob": float(caption.word_log_probs[step]),
                "gate": np.nan if caption.gates is None else float(caption.gates[step]),
                "peak": float(weights[row, column]),
                "row": int(row),
                "column": int(column),
            }
        )
    return rows


def cell_rows(caption: Caption, index: int) -> list[dict[str, Any]]:
    """The rows of a caption with `CELL_COLUMNS`, see `Captions.to_frame`; `index` is that of its photo."""
    image = photo_path(caption)
    return [
        {
            "image": image, "photo": index, "step": step, "word": caption.words[step], "row": row, "column": column,
            "weight": float(caption.weights[step, row, column]),
        }
        for step, row, column in np.ndindex(caption.weights.shape)
    ]  # fmt: skip


def photo_path(caption: Caption) -> str | None:
    """The path of the photo, if it came from a file."""
    path = getattr(caption.image, "filename", caption.image)
    return str(path) if hasattr(path, "__fspath__") or (isinstance(path, str) and path) else None


def map_label(name: str, index: int | tuple[int, ...] | None) -> str:
    """The label of a single map in figures: "heads[2]", "channels[2, 0]", "level 1"."""
    position = () if index is None else tuple(np.atleast_1d(index).tolist())
    return f"{name}[{', '.join(map(str, position))}]" if position else name


def _weights(name: str, values: Any, steps: int) -> np.ndarray:
    weights = np.array(values, dtype=np.float32)
    if weights.ndim < 3 or len(weights) != steps or 0 in weights.shape[1:]:
        raise ValueError(f"{name} must be (words, ..., rows, cols) with {steps} words, not {weights.shape}")
    if not np.isfinite(weights).all():
        raise ValueError(f"{name} must be finite numbers")
    return weights


def _per_word(name: str, values: Any, steps: int, *numbers: int, dtype: Any = np.float32) -> np.ndarray:
    """(T, *numbers) of T words; without words, also an empty array of another shape."""
    array, shape = np.array(values, dtype), (steps, *numbers)
    if array.shape != shape and array.size + steps:
        count = "one number" if not numbers else f"{numbers[0]} numbers"
        raise ValueError(f"{name} must hold {count} for each of the {steps} words, not shape {array.shape}")
    return array.reshape(shape)


def _box(name: str, values: Sequence[float]) -> tuple[float, float, float, float]:
    if len(values) != 4:
        raise ValueError(f"{name} must be (left, top, right, bottom), not {tuple(values)}")
    left, top, right, bottom = (float(value) for value in values)
    # NaN must fail, too.
    if not (left < right and top < bottom and all(map(math.isfinite, (left, top, right, bottom)))):
        raise ValueError(f"{name} must have left < right and top < bottom, not {(left, top, right, bottom)}")
    return left, top, right, bottom


def _locations(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    steps, rows, cols = shape
    locations = _per_word("locations", values, steps, 2, dtype=np.int64)
    if ((locations < 0) | (locations >= (rows, cols))).any():
        raise ValueError(f"locations must lie in the grid of {rows} rows and {cols} columns")
    return locations


def json_number(value: float) -> float | None:
    """The number, or None where JSON cannot write it (NaN, infinities)."""
    return float(value) if math.isfinite(value) else None
