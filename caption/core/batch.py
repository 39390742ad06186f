"""A batch of images with captions, the input of training, validation and test."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from caption.core.box import Box
from caption.core.regions import Views


class CaptionBatch(NamedTuple):
    """The captions of B images, K each, for teacher forcing."""

    words: Tensor
    """(B, K, T) int64, the input words: the start token, then the caption without its end token."""
    targets: Tensor
    """(B, K, T) int64, the target word of each step: the caption, then the end token. Padding of `words` and `targets`
    is arbitrary."""
    lengths: Tensor
    """(B, K) int64, the number of real steps of each caption, its end token included; 0 for an absent caption. Those of
    a loader stay in the host's memory, where shapes are made from them without waiting for a GPU."""

    def real(self) -> Tensor:
        """(B, K, T) bool: True for real steps, False for padding."""
        lengths = self.lengths.to(self.words.device, non_blocking=True)
        return torch.arange(self.words.shape[2], device=self.words.device) < lengths[..., None]

    def repeated(self, times: int) -> CaptionBatch:
        """Repeat each caption: (B, K · times, ...), with the copies of a caption next to each other."""
        return CaptionBatch(*(tensor.repeat_interleave(times, 1) for tensor in self))


class Batch(NamedTuple):
    """B images with K captions each; missing captions have length 0."""

    images: Tensor | None
    """(B, 3, H, W) uint8, or None if the regions are precomputed."""
    views: Views | None
    """Precomputed regions in half precision, of each view (B, L, D), or None."""
    captions: CaptionBatch
    """Padded with PAD."""
    ids: list[int | str]
    """The images' ids."""
    references: list[tuple[str, ...]]
    """All original captions of each image, for metrics."""
    boxes: list[Box]
    """The part of each original image that the transform shows to the model."""
