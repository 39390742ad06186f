"""What every attention mechanism offers the decoder."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from caption.parts import Part
from caption.tensor_tree import Record


class Memory(NamedTuple):
    """An image as the attention sees it: whatever depends on the image alone, computed once."""

    keys: Tensor
    """(B, L, A) what the score compares the query with."""
    values: Tensor
    """(B, L, D) what is averaged into the context: the region vectors a."""
    mask: Tensor | None
    """(B, L) bool, True where there is a region; None when all are real."""


class Look(NamedTuple):
    """The result of attending once: B images, K queries each, L regions."""

    context: Tensor
    """(B, K, D) the vector z."""
    weights: Tensor
    """(B, K, L) the distribution α; rows sum to 1, 0 where masked."""
    state: Record = None
    """What the mechanism carries to the next step; tensors (B, K, ...)."""
    location: Tensor | None = None
    """(B, K) int64: the region that was chosen, for mechanisms that choose one; -1 where the expectation
    over all regions was used instead."""
    log_prob: Tensor | None = None
    """(B, K) log α of the sampled location, for mechanisms that sample; 0 where nothing was sampled."""


class Attention(Part, nn.Module):
    """A mechanism that chooses, for each query, what to read from an image's regions.

    No state is kept on the module between calls: what a mechanism carries from step to step travels in
    `Look.state`, which search reorders with its hypotheses.
    """

    context_size: int
    """Length of the context vector; known after `build`."""

    def build(self, region_size: int, query_size: int) -> None:
        """Create the weights for regions of `region_size` and queries of `query_size` numbers. Called once."""
        raise NotImplementedError

    def project(self, regions: Tensor, mask: Tensor | None = None) -> Memory:
        """Compute what depends on the image alone.

        Args:
            regions: (B, L, D) region vectors.
            mask: (B, L) bool, True = real; None = all real.
        """
        raise NotImplementedError

    def start(self, memory: Memory, hypotheses: int) -> Record:
        """What the mechanism carries into the first step, tensors (B, K, ...) with K = `hypotheses`, or None."""
        return None

    def forward(self, query: Tensor, memory: Memory, state: Record = None) -> Look:
        """Attend.

        Args:
            query: (B, K, H): K queries share one image.
            memory: of the B images.
            state: from `start` or the last `Look`.
        """
        raise NotImplementedError
