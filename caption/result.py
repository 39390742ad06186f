"""One result: a caption, the weights behind each of its words, and how to see and keep them.

Nothing here needs the model that wrote the caption: a result can be pickled, sent, stored and drawn without
a checkpoint. Importing this module loads neither PyTorch nor Matplotlib; drawing does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from caption.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image

    Photo = Image.Image | str | os.PathLike[str]


class OutputError(UserError):
    """A result cannot be written where the user asked."""


@dataclass(eq=False, repr=False)
class Caption:
    """What the model says about one image, and where it looked for every word.

    T words (the end token is not one of them), a grid of rows x cols regions. Arrays are converted on
    construction; lengths and shapes that do not agree raise ValueError.

    Attributes:
        text: the sentence, as a person would read it.
        words: the T tokens it is made of.
        weights: (T, rows, cols) float32, α of each word: `weights[t]` is where the model looked to emit
            `words[t]`.
        log_prob: natural logarithm of the probability of the whole sentence, end token included.
        word_log_probs: (T,) natural log-probability of each word given those before it. Their sum is
            `log_prob` less the end token's share.
        box: (left, top, right, bottom), the part of the original image that the grid covers, in that image's
            pixels counted from its upper left corner, pixel edges being whole numbers. It reaches beyond the
            image where the transform padded.
        gates: (T,) β of each word (section 4.2.1 of Xu et al. 2015), or None for a model without a gate.
        finished: False where the search stopped before the end token.
        image: the photo itself or its path; EXIF orientation is applied when it is opened.
        locations: (T, 2) int64 row and column where hard attention looked, or None.
        alternatives: the other captions of the search, best first; this one is not among them.
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
    locations: np.ndarray | None = None
    alternatives: list[Caption] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.words = [str(word) for word in self.words]
        self.weights = _weights(self.weights, len(self.words))
        self.log_prob = float(self.log_prob)
        self.word_log_probs = _per_word("word_log_probs", self.word_log_probs, len(self.words))
        self.box = _box(self.box)
        if self.gates is not None:
            self.gates = _per_word("gates", self.gates, len(self.words))
        if self.locations is not None:
            self.locations = _locations(self.locations, self.weights.shape)
        self.finished = bool(self.finished)
        self.alternatives = list(self.alternatives)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        steps, rows, cols = self.weights.shape
        unfinished = "" if self.finished else ", unfinished"
        facts = f"{steps} words on {rows}x{cols}, log p {self.log_prob:.2f}{unfinished}"
        return f"Caption({self.text!r}, {facts})"

    def to_dict(self) -> dict[str, Any]:
        """Everything but the weights and the image, in types that `json.dumps` takes.

        Numbers that JSON cannot write (NaN, infinities) become None.
        """
        return {
            "text": self.text,
            "words": list(self.words),
            "log_prob": _json_number(self.log_prob),
            "word_log_probs": [_json_number(value) for value in self.word_log_probs],
            "gates": None if self.gates is None else [_json_number(value) for value in self.gates],
            "finished": self.finished,
            "box": list(self.box),
            "grid": list(self.weights.shape[1:]),
            "locations": None if self.locations is None else self.locations.tolist(),
            "alternatives": [caption.to_dict() for caption in self.alternatives],
        }

    def plot(self, image: Photo | None = None, **options: Any) -> Figure:
        """The paper's figure: the photo, then one panel per word (`caption.visualize.plot_caption`).

        Args:
            image: the photo to draw over; by default the one the caption carries.
            options: passed on to `plot_caption`.

        Raises:
            ValueError: neither the call nor the caption has a photo.
            caption.errors.ImageError: the photo cannot be opened.
        """
        from caption.visualize.figure import plot_caption

        return plot_caption(self, self._photo(image), **options)

    def to_html(self, image: Photo | None = None, title: str | None = None) -> str:
        """A complete page in which the light follows the words (`caption.visualize.to_html`).

        Args:
            image: the photo; by default the one the caption carries.
            title: plain text over the photo; by default the sentence.

        Raises:
            ValueError: neither the call nor the caption has a photo.
            caption.errors.ImageError: the photo cannot be opened.
        """
        from caption.visualize.html import to_html

        return to_html([self], str(self) if title is None else title, images=[self._photo(image)])

    def _repr_html_(self) -> str | None:
        """The same for a notebook; None, which makes it print `repr`, for a caption without a photo."""
        from caption.visualize.html import to_fragment

        return None if self.image is None else to_fragment([self])

    def save_attention(self, path: str | os.PathLike[str]) -> None:
        """Write the attention as an `.npz`, loadable without pickle.

        Arrays: `words` (T,) unicode, without the end token; `weights` (T, rows, cols) float32; `gates` (T,)
        float32, NaN throughout for a model without a gate; `box` (4,) float64.

        Raises:
            OutputError: the file cannot be written.
        """
        gates = np.full(len(self.words), np.nan, np.float32) if self.gates is None else self.gates
        words = np.array(self.words, dtype=np.str_)
        try:
            # An open file, because NumPy would add ".npz" to a name without it.
            with open(path, "wb") as file:
                np.savez(file, words=words, weights=self.weights, gates=gates, box=np.array(self.box))
        except OSError as error:
            raise OutputError(f"cannot write {os.fspath(path)}: {error.strerror or error}") from error

    def _photo(self, image: Photo | None) -> Photo:
        photo = self.image if image is None else image
        if photo is None:
            raise ValueError("this caption carries no photo: pass it as image=")
        return photo


def _weights(values: Any, steps: int) -> np.ndarray:
    weights = np.array(values, dtype=np.float32)
    if weights.ndim != 3 or len(weights) != steps or 0 in weights.shape[1:]:
        raise ValueError(f"weights must be (words, rows, cols) with {steps} words, not {weights.shape}")
    if not np.isfinite(weights).all():
        raise ValueError("weights must be finite numbers")
    return weights


def _per_word(name: str, values: Any, steps: int) -> np.ndarray:
    array = np.array(values, dtype=np.float32)
    if array.shape != (steps,):
        raise ValueError(
            f"{name} must hold one number for each of the {steps} words, not shape {array.shape}"
        )
    return array


def _box(values: Sequence[float]) -> tuple[float, float, float, float]:
    if len(values) != 4:
        raise ValueError(f"box must be (left, top, right, bottom), not {tuple(values)}")
    left, top, right, bottom = (float(value) for value in values)
    # Written so that NaN fails, too.
    if not (left < right and top < bottom and all(map(math.isfinite, (left, top, right, bottom)))):
        raise ValueError(f"box must have left < right and top < bottom, not {(left, top, right, bottom)}")
    return left, top, right, bottom


def _locations(values: Any, shape: tuple[int, ...]) -> np.ndarray:
    steps, rows, cols = shape
    locations = np.array(values, dtype=np.int64).reshape(-1, 2) if steps == 0 else np.array(values, np.int64)
    if locations.shape != (steps, 2):
        raise ValueError(f"locations must be (words, 2) with {steps} words, not {locations.shape}")
    if ((locations < 0) | (locations >= (rows, cols))).any():
        raise ValueError(f"locations must lie in the grid of {rows} rows and {cols} columns")
    return locations


def _json_number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
