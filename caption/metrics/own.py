"""Metrics of one's own: functions of candidates, references and photos, scored like the others."""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from caption.core.errors import UserError, first_few, kind_and_reason
from caption.metrics.corpus import Corpus
from caption.metrics.score import Id, MetricScore


class Metric(Protocol):
    """A function of N captions, the references of each and, if they are given, the N photos; it gives N numbers.

    Its `name` and `version`, if it has them, stand in the signature; by default its own name, and the `__version__` of
    its package. So does a digest of its weights, if it has a `state_dict`, as any `torch.nn.Module` does.
    """

    def __call__(
        self, candidates: Sequence[str], references: Sequence[Sequence[str]], photos: Sequence[Path] | None, /
    ) -> Sequence[float]: ...


def name_of(metric: Metric) -> str:
    """The name of a metric in tables, JSON and the signature."""
    return str(getattr(metric, "name", "") or getattr(metric, "__name__", "") or type(metric).__name__)


def identity_of(metric: Metric) -> str:
    """The version of a metric and the digest of its weights, as far as it has them, such as "1.2-3f9a0c41d2e8"."""
    module = sys.modules.get(str(getattr(metric, "__module__", "")).partition(".")[0])
    version = getattr(metric, "version", None) or getattr(module, "__version__", None)
    return "-".join(str(part) for part in (version, _digest(metric)) if part) or "unversioned"


def own_score(metric: Metric, corpus: Corpus, photos: Mapping[Id, Path] | None) -> MetricScore:
    """The mean over the images of a metric of one's own.

    Args:
        metric: see `Metric`.
        corpus: the captions, as they are written; the metric splits them itself.
        photos: the file of each image; None = the metric gets None.

    Raises:
        UserError: an image has no photo, the metric fails, or it does not give one finite number for each image.
    """
    name = name_of(metric)
    if photos is not None and (missing := [image for image in corpus.ids if image not in photos]):
        raise UserError(
            f"the metric {name} has no photo of {first_few(missing)}: add it, or leave the image out."
        )
    files = None if photos is None else [photos[image] for image in corpus.ids]
    try:
        values = list(map(float, metric(corpus.texts, corpus.references.texts, files)))
    except Exception as error:  # code of other people
        raise UserError(f"the metric {name} fails with {kind_and_reason(error)}.") from error
    if len(values) != len(corpus.ids):
        raise UserError(
            f"the metric {name} gives {len(values)} numbers for {len(corpus.ids)} images: it must give one for each."
        )
    if odd := [image for image, value in zip(corpus.ids, values, strict=True) if not math.isfinite(value)]:
        raise UserError(
            f"the metric {name} gives a number that is not finite for {first_few(odd)}: correct it."
        )
    return MetricScore.from_mean(name, corpus.ids, values)


def _digest(metric: Any) -> str:
    """The first twelve hexadecimal digits of the SHA-256 of a module's weights by name; "" if it has none."""
    if not callable(getattr(metric, "state_dict", None)):
        return ""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(metric.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:12]
