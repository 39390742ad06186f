"""Sorting and packing captions of different lengths, so that an unroll computes little padding."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from caption.core.tensor_tree import TensorTree, combine, map_tensors, select_images


class PackedCaptions(NamedTuple):
    """Captions sorted so that those still running at step t fill a rectangle: the first b images, k captions each.

    The rectangle shrinks from step to step. The steps are packed in the order of t.
    """

    words: Tensor
    """(B, K, T) int64, sorted: the longest captions of each image first, the images with the longest captions first."""
    order: Tensor
    """(B,) int64: the index of each sorted image in the batch."""
    shapes: list[tuple[int, int]]
    """(b, k) of each step."""
    steps: Tensor | None
    """(N,) int64: indices of the real steps among the packed ones; None = all are real, as with one caption per
    image."""
    positions: Tensor
    """(N,) int64: index of each real step in the flattened (B, K, T) of the unsorted captions."""

    @classmethod
    def sort(cls, words: Tensor, lengths: Tensor) -> PackedCaptions:
        """Sort captions: words (B, K, T), lengths (B, K)."""
        ranks = lengths.argsort(1, descending=True)
        order = lengths.amax(1).argsort(descending=True, stable=True)
        ranks = ranks[order]
        hypotheses, longest = words.shape[1:]
        words = words[order].gather(1, ranks[..., None].expand_as(words))
        times = torch.arange(longest, device=words.device)
        running = lengths[order].gather(1, ranks)[..., None] > times  # (B, K, T)
        rows = running.any(1).sum(0).tolist()
        columns = running.any(0).sum(0).tolist()
        # A batch without captions has one empty step, which gives the shapes.
        shapes = list(zip(rows, columns, strict=True))[: max(1, sum(b > 0 for b in rows))]
        origins = ((order[:, None] * hypotheses + ranks) * longest)[..., None] + times
        packing = cls(words, order, shapes, None, origins)
        is_real = packing.pack(running)
        steps = None if is_real.all() else is_real.nonzero().squeeze(-1)
        packing = packing._replace(steps=steps)
        return packing._replace(positions=packing.real(packing.pack(origins)))

    @property
    def shape(self) -> tuple[int, int, int]:
        """(B, K, T)."""
        images, hypotheses, steps = self.words.shape
        return images, hypotheses, steps

    @property
    def sizes(self) -> list[int]:
        """Number of packed steps at each time."""
        return [b * k for b, k in self.shapes]

    def pack(self, sorted_steps: Tensor) -> Tensor:
        """(B, K, T) sorted -> the packed steps of all times, ordered by time."""
        return torch.cat([sorted_steps[:b, :k, t].flatten() for t, (b, k) in enumerate(self.shapes)])

    def real(self, packed: Tensor) -> Tensor:
        """The real steps among packed ones."""
        return packed if self.steps is None else packed[self.steps]

    def join(self, trees: list[TensorTree]) -> TensorTree:
        """One tree (b, k, ...) per time -> one tree (N, ...) of the real steps."""
        return combine(lambda parts: self.real(torch.cat([part.flatten(0, 1) for part in parts])), trees)

    def sort_memory(self, memory: TensorTree) -> TensorTree:
        """Tensors (B, ...) in the order of the sorted captions, without a copy if they are in order already."""
        if self.order.tolist() == list(range(len(self.order))):
            return map_tensors(Tensor.contiguous, memory)
        return select_images(memory, self.order)
