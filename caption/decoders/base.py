"""What every decoder offers training and search."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.parts import Part
from caption.tensor_tree import Record, State


class Trace(NamedTuple):
    """What is known about the step that emitted a word; (B, K, ...) in search, (N, ...) in an unroll."""

    weights: Tensor
    """(..., L) α[t]."""
    gate: Tensor | None = None
    """(...) β[t]; the mean over the features for a vector gate; None without a gate."""
    location: Tensor | None = None
    """(...) int64, the region that was chosen, -1 where none was; None for soft attention."""
    log_prob: Tensor | None = None
    """(...) log α of the sampled location, 0 where none was sampled; None for mechanisms that do not sample."""


class Unrolled(NamedTuple):
    """A batch of captions under teacher forcing. Only real steps are kept: N of them, in no promised order."""

    logits: Tensor
    """(N, V) unnormalised log-probabilities of the word at each real step."""
    trace: Trace
    """What the decoder looked at at each real step, tensors (N, ...)."""
    queries: Tensor
    """(N, H) without gradient: what each step asked the attention with, h[t-1]; it does not know where step t looks."""
    positions: Tensor
    """(N,) int64: where each real step stands in the flattened (B, K, T)."""
    shape: tuple[int, int, int]
    """(B, K, T)."""

    def there(self) -> Tensor:
        """(B, K) bool: which captions have a step at all. Their number is the N of the paper's 1/N Σ_n."""
        return self.unpack(torch.ones_like(self.positions)).any(-1)

    def pack(self, padded: Tensor) -> Tensor:
        """(B, K, T, ...) -> (N, ...): the entries of the real steps, e.g. of the target words."""
        return padded.flatten(0, 2)[self.positions]

    def unpack(self, packed: Tensor) -> Tensor:
        """(N, ...) -> (B, K, T, ...), zero where there is no step, so that sums over T see real steps only."""
        images, hypotheses, steps = self.shape
        flat = packed.new_zeros(images * hypotheses * steps, *packed.shape[1:])
        return flat.index_copy(0, self.positions, packed).unflatten(0, self.shape)


class Decoder(Part, nn.Module):
    """Writes captions one word at a time. `forward` and repeated `step` give the same log-probabilities."""

    query_size: int
    """Length H of the queries with which it attends; known from the start."""

    def build(self, region_size: int, vocabulary_size: int, padding: int, start: int) -> None:
        """Create the weights. Called once.

        Args:
            region_size: length D of the region vectors.
            vocabulary_size: number of words V.
            padding: id of the padding word.
            start: id of the word that is fed first.
        """
        raise NotImplementedError

    def project(self, regions: Tensor, mask: Tensor | None = None) -> Record:
        """Regions (B, L, D) -> memory: what depends on the image alone, computed once per image."""
        raise NotImplementedError

    def start(self, memory: Record, hypotheses: int = 1) -> State:
        """The state before the first word, for K = `hypotheses` captions of each image."""
        raise NotImplementedError

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        """One word on.

        Args:
            state: after the words before.
            words: (B, K) int64, the previous word of each caption.

        Returns:
            (B, K, V) float32 log-probabilities of the next word, and the state, whose `trace` is a `Trace`.
        """
        raise NotImplementedError

    def compile_step(self) -> None:
        """Have what is done at every word compiled when it first runs; a decoder that cannot does nothing."""

    def forward(self, memory: Record, words: Tensor, lengths: Tensor) -> Unrolled:
        """Teacher forcing.

        Args:
            memory: of the B images.
            words: (B, K, T) int64, the words fed in: the start token, then the caption without its end.
            lengths: (B, K) int64, how many steps of each caption are real; 0 for a caption that is not there.
        """
        raise NotImplementedError
