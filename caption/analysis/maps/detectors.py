"""The map of word detectors, which a training with guided attention leaves in its checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from caption.analysis.lens.lens import regions_of
from caption.analysis.maps.method import Draw, placed
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.models import checkpoint, model_zoo
from caption.objectives.guided_attention import GuidedAttention
from caption.objectives.word_detectors import WordDetectors, saved_detectors
from caption.results.caption import Caption
from caption.text.vocabulary import Vocabulary


class Trained(NamedTuple):
    """What a checkpoint has of word detectors."""

    detectors: WordDetectors
    vocabulary: Vocabulary
    encoder: dict[str, Any]
    """The description of the encoder whose regions they read."""


def detected(file: str) -> Draw:
    """For each word, softmax(s) over the regions of its detector's log-odds s: the probability that a region contains
    the word if exactly one does. Words without a detector, such as "in" and rare ones, get 0.

    Args:
        file: the checkpoint of a training with `GuidedAttention`, with the encoder of the model that is explained.

    Source: Fang et al. 2015, "From Captions to Visual Concepts and Back", eq. 1.

    Raises:
        UserError: there is no such file; it has no word detectors; when maps are drawn, they read another encoder.
    """
    path = Path(model_zoo.find(file))
    written = path.stat().st_mtime_ns if path.exists() else 0
    detectors, vocabulary, encoder = _trained(path, written, file)

    def draw(captioner: Captioner, photos: Sequence[Photo], captions: Sequence[Caption]) -> list[Caption]:
        if captioner.encoder.spec != encoder:
            raise UserError(f"the word detectors of {file} read another encoder than this model has")
        drawn = []
        for photo, caption in zip(photos, captions, strict=True):
            fitted = captioner.read(photo)
            regions = regions_of(captioner.encode([fitted]), 0)
            rows = detectors.index[[vocabulary[word] for word in caption.words]]
            with torch.no_grad():
                maps = detectors(regions)[0].softmax(0).T[rows] * (rows >= 0)[:, None]  # (T, L)
            weights: np.ndarray = maps.unflatten(1, regions.grid).numpy()
            drawn.append(placed(captioner, caption, fitted, weights))
        return drawn

    return draw


@lru_cache(maxsize=1)  # analyses draw photo by photo, and a checkpoint may be large
def _trained(path: Path, written: int, file: str) -> Trained:
    """The word detectors in a checkpoint that was written at a time and that the user calls `file`."""
    contents = checkpoint.read(path)
    saved = next(iter(saved_detectors(contents["state_dict"])), None)
    if saved is None:
        raise UserError(
            f"{file} has no word detectors: take the checkpoint of a training with -c training/guided_attention"
        )
    settings = next(_guidances(contents.get("hyper_parameters", {}).get("objective")), {})
    words, region_size = saved["layer.weight"].shape
    detectors = WordDetectors(region_size, len(saved["index"]), words, settings.get("smoothing", 0.0))
    detectors.load_state_dict(saved)
    captioner = contents["captioner"]
    return Trained(detectors, Vocabulary.from_dict(captioner["vocabulary"]), captioner["encoder"])


def _guidances(spec: Any) -> Iterator[dict[str, Any]]:
    """The arguments of guided attention in the description of an objective, at any depth."""
    if isinstance(spec, dict):
        if str(spec.get("class_path")).endswith(f".{GuidedAttention.__name__}"):
            yield spec.get("init_args", {})
        for part in spec.values():
            yield from _guidances(part)
    elif isinstance(spec, list):
        for part in spec:
            yield from _guidances(part)
