"""Captions photos with exported ONNX files, without this package. `caption export` copies this file beside them.

It needs numpy and onnxruntime, and Pillow to read photos from files:

    python captioner.py PHOTO...

or, in Python,

    captioner = OnnxCaptioner("folder")
    captions = captioner.describe(pixels)  # (B, 3, H, W) uint8, RGB; `captioner.pixels(photo)` makes them
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

MODEL = "model.json"
"""Words, search and image transform, and the names of the tensors."""
ENCODER, STEP = "encoder.onnx", "step.onnx"


class Caption(NamedTuple):
    """A caption of T words and where the model looked."""

    text: str
    words: list[str]
    weights: np.ndarray
    """(T, rows, cols) α."""
    gates: np.ndarray | None
    """(T,) β; None for models without a gate."""
    log_prob: float
    """log p of all words and the end."""
    finished: bool
    """False if the caption reached the largest number of words without an end."""


class _Step(NamedTuple):
    """One step's extension of the hypotheses: each continues a parent (B, K) by a word (B, K)."""

    parents: np.ndarray
    words: np.ndarray
    shown: list[np.ndarray]
    """The weights (B, K, L) of that word, and its gate (B, K) if there is one."""


class OnnxCaptioner:
    """An exported captioner.

    Args:
        folder: written by `caption export --format onnx`.
        providers: of onnxruntime, such as "CUDAExecutionProvider".
        threads: of each operation; 0 = onnxruntime decides.
    """

    def __init__(
        self, folder: str | Path, providers: Sequence[str] = ("CPUExecutionProvider",), threads: int = 0
    ) -> None:
        folder = Path(folder)
        self.model: dict[str, Any] = json.loads((folder / MODEL).read_text(encoding="utf-8"))
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self.encoder, self.step = (
            onnxruntime.InferenceSession(str(folder / name), options, providers=list(providers))
            for name in (ENCODER, STEP)
        )
        self.carried: list[str] = self.model["carried"]

    def describe(self, images: np.ndarray, beam_size: int | None = None) -> list[Caption]:
        """Caption images by beam search, with the settings in model.json.

        Args:
            images: (B, 3, H, W) uint8, RGB, of the size in model.json.
            beam_size: K; None = the model's, 1 = greedy.
        """
        search = self.model["search"]
        beam = _Beam(self.model, len(images), beam_size or search["beam_size"])
        tensors = self._run(self.encoder, {"images": images})
        words = np.full((len(images), 1), self.model["start"], dtype=np.int64)
        for _ in range(search["max_length"]):
            out = self._run(self.step, {"words": words, **tensors})
            shown = [out[name] for name in ("weights", "gate") if name in out]
            step = beam.extend(out["log_probs"], shown)
            for name in self.carried:
                tensors[name] = _select(out[f"next_{name}"], step.parents)
            words = step.words
            if beam.is_complete():
                break
        return [self._caption(*beam.best(image)) for image in range(len(images))]

    def pixels(self, photo: Any) -> np.ndarray:
        """(3, H, W) uint8 of a photo, upright and fitted to the model's size.

        Args:
            photo: path, or a Pillow image.

        Raises:
            ValueError: its pixels are 32-bit numbers, whose range is unknown, or its file holds several images.
        """
        from PIL import Image, ImageOps

        image = photo if isinstance(photo, Image.Image) else Image.open(photo)
        if (
            image is not photo
            and image.format == "TIFF"
            and (image.n_frames > 1 or image.tag_v2.get(254, 0) & 1)  # type: ignore[attr-defined]
        ):
            raise ValueError(
                "the photo is one of several images of a TIFF or raw file: save it as JPEG or PNG"
            )
        image = ImageOps.exif_transpose(image)
        if image.mode in ("I", "F"):
            raise ValueError(f"the photo has 32-bit pixels (mode {image.mode}): save it with 8 or 16 bits")
        if image.mode.startswith("I;16"):
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.has_transparency_data:
            white = Image.new("RGBA", image.size, "white")
            image = Image.alpha_composite(white, image.convert("RGBA"))
        image = image.convert("RGB")
        width, height = self._size()
        if self.model["transform"]["fit"] == "pad":
            inner, place = self._padded(*image.size)
            fitted = Image.new("RGB", (width, height), (128, 128, 128))
            fitted.paste(image.resize(inner, Image.Resampling.BILINEAR), place)
        else:
            box = self.seen(*image.size)
            fitted = image.resize((width, height), Image.Resampling.BILINEAR, box=box)
        return np.asarray(fitted).transpose(2, 0, 1).copy()

    def seen(self, width: int, height: int) -> tuple[float, float, float, float]:
        """(left, top, right, bottom), the part of a photo of this size that `pixels` shows, in the photo's pixels.

        Padding is part of it, so it may extend beyond the photo.
        """
        across, down = self._size()
        fit = self.model["transform"]["fit"]
        if fit == "pad":
            inner, place = self._padded(width, height)
            x, y = width / inner[0], height / inner[1]
            left, top = -place[0] * x, -place[1] * y
            return left, top, left + across * x, top + down * y
        left = top = 0.0
        if resize := self.model["transform"].get("resize"):
            scale = min(width, height) / resize
            # Rounding may give slightly more than the photo.
            left, top = max(0.0, width - scale * across) / 2, max(0.0, height - scale * down) / 2
        elif fit == "crop":
            left = max(0.0, width - height * across / down) / 2
            top = max(0.0, height - width * down / across) / 2
        return left, top, width - left, height - top

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """(left, top, right, bottom), the part of a photo of this size that the grid of `Caption.weights` covers.

        The receptive field of a region is centred on its cell. The box need not coincide with the part that is seen.
        """
        left, top, right, bottom = self.seen(width, height)
        x, y = right - left, bottom - top
        shares = self.model["covers"]
        return left + shares[0] * x, top + shares[1] * y, left + shares[2] * x, top + shares[3] * y

    def _size(self) -> tuple[int, int]:
        """Width and height of the model's input."""
        size = self.model["transform"]["size"]
        return (size[1], size[0]) if isinstance(size, list) else (size, size)

    def _padded(self, width: int, height: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Width and height of a photo inside the padding, and the place of its upper left corner."""
        across, down = self._size()
        if width * down > height * across:
            inner = (across, max(1, round(height * across / width)))
        else:
            inner = (max(1, round(width * down / height)), down)
        return inner, ((across - inner[0]) // 2, (down - inner[1]) // 2)

    def _caption(
        self, ids: list[int], shown: list[list[np.ndarray]], log_prob: float, finished: bool
    ) -> Caption:
        rows, cols = self.model["grid"]
        words = [self.model["words"][number] for number in ids]
        weights = np.array([step[0] for step in shown], np.float32).reshape(len(ids), rows, cols)
        has_gate = any(output.name == "gate" for output in self.step.get_outputs())
        gates = np.array([step[1] for step in shown], np.float32) if has_gate else None
        text = " ".join(words)
        for spelling, bracket in self.model["brackets"].items():
            text = re.sub(spelling, bracket, text, flags=re.IGNORECASE)
        text = re.sub(self.model["unwritten"], "", text)
        return Caption(text, words, weights, gates, log_prob, finished)

    @staticmethod
    def _run(session: Any, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        feeds = {entry.name: inputs[entry.name] for entry in session.get_inputs()}
        names = [entry.name for entry in session.get_outputs()]
        return dict(zip(names, session.run(names, feeds), strict=True))


class _Ending(NamedTuple):
    """The end of a hypothesis: its number of steps, its place in the last of them, its log-probability, its score."""

    steps: int
    slot: int
    log_prob: float
    score: float


class _Beam:
    """Beam search over B images; score = log p / length ** length_normalization, the length with the end word.

    In `totals` and scores, log p of a content word that was said before, and of any word directly after itself, is
    lowered by `repeat_penalty`.
    """

    def __init__(self, model: dict[str, Any], images: int, beam_size: int) -> None:
        self.end: int = model["end"]
        self.forbidden: list[int] = model["forbidden"]
        self.exponent: float = model["search"]["length_normalization"]
        self.max_length: int = model["search"]["max_length"]
        self.penalty: float = model["search"]["repeat_penalty"]
        self.content: list[int] = model["content"]
        self.beam_size = beam_size
        self.said = np.zeros((images, 1, 0), np.int64)
        self.log_probs = np.zeros((images, 1), np.float32)  # log p of the hypotheses, without penalties
        self.totals = np.zeros((images, 1), np.float32)  # -inf where there is no live hypothesis
        self.steps: list[_Step] = []
        self.finished = [_Ending(0, 0, -np.inf, -np.inf)] * images
        self.unfinished = [_Ending(0, 0, 0.0, 0.0)] * images  # no words yet

    def extend(self, log_probs: np.ndarray, shown: list[np.ndarray]) -> _Step:
        """Take the K most probable one-word extensions of each image, given log-probabilities (B, K, V)."""
        log_probs = np.nan_to_num(log_probs.astype(np.float32), nan=-np.inf, posinf=np.inf, neginf=-np.inf)
        log_probs[..., self.forbidden] = -np.inf
        images, _, words = log_probs.shape
        ranked = np.where(self._repeats(words), log_probs - self.penalty, log_probs)
        totals = (self.totals[..., None] + ranked).reshape(images, -1)
        best = np.arange(totals.shape[1])[None].repeat(images, 0)
        if self.beam_size < totals.shape[1]:
            best = np.argpartition(-totals, self.beam_size, axis=1)[:, : self.beam_size]
        order = np.take_along_axis(-totals, best, 1).argsort(axis=1, kind="stable")
        best = np.take_along_axis(best, order, 1)
        totals = np.take_along_axis(totals, best, 1)
        step = _Step(best // words, best % words, [_select(tensor, best // words) for tensor in shown])
        self.steps.append(step)
        true = (self.log_probs[..., None] + log_probs).reshape(images, -1)
        self.log_probs = np.take_along_axis(true, best, 1)
        self.said = np.concatenate([_select(self.said, step.parents), step.words[..., None]], 2)
        ended = step.words == self.end
        self.totals = np.where(ended, -np.inf, totals)
        for image in range(images):
            self._note(image, np.where(ended[image], totals[image], -np.inf), self.finished)
            if (totals[image] > -np.inf).any():
                self.unfinished[image] = _Ending(0, 0, -np.inf, -np.inf)
                self._note(image, self.totals[image], self.unfinished)
        return step

    def _repeats(self, words: int) -> np.ndarray:
        """(B, K, V) bool: the words that are lowered."""
        repeats = np.zeros((*self.said.shape[:2], words), bool)
        lowered = np.isin(self.said, self.content)
        lowered[..., -1:] = True
        np.put_along_axis(repeats, np.where(lowered, self.said, self.end), True, 2)
        repeats[..., self.end] = False
        return repeats

    def _note(self, image: int, totals: np.ndarray, endings: list[_Ending]) -> None:
        """Keep the best of the hypotheses (K,) if it beats the one noted before."""
        slot = int(totals.argmax())
        score = float(totals[slot]) / len(self.steps) ** self.exponent
        if score > endings[image].score:
            endings[image] = _Ending(len(self.steps), slot, float(self.log_probs[image, slot]), score)

    def is_complete(self) -> bool:
        """Whether no live hypothesis can overtake a finished one."""
        reach = self.totals.max(1) / self.max_length**self.exponent
        return all(bool(reach[image] <= ending.score) for image, ending in enumerate(self.finished))

    def best(self, image: int) -> tuple[list[int], list[list[np.ndarray]], float, bool]:
        """Words, their weights and gates, log-probability, and whether the caption is finished."""
        finished = self.finished[image].score > -np.inf
        ending = (self.finished if finished else self.unfinished)[image]
        words, shown, slot = [], [], ending.slot
        for step in reversed(self.steps[: ending.steps]):
            words.append(int(step.words[image, slot]))
            shown.append([tensor[image, slot] for tensor in step.shown])
            slot = int(step.parents[image, slot])
        length = ending.steps - finished
        return words[::-1][:length], shown[::-1][:length], ending.log_prob, finished


def _select(tensor: np.ndarray, parents: np.ndarray) -> np.ndarray:
    """(B, K, ...) reordered so that hypothesis k of image b is the old `parents[b, k]`."""
    return tensor[np.arange(len(tensor))[:, None], parents]


def main(photos: Sequence[str]) -> None:
    """Print the captions of photos, one a line."""
    captioner = OnnxCaptioner(Path(__file__).parent)
    for photo in photos:
        print(captioner.describe(captioner.pixels(photo)[None])[0].text)


if __name__ == "__main__":
    main(sys.argv[1:])
