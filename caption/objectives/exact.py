"""The truth that estimators of hard attention are held to: the bound L_s and log p(y|a) by enumerating all paths.

A path is a region for each of a caption's T steps; there are L^T of them, so grid and caption must be small. Paths are
numbered: path n looks at step t at region ⌊n / L^t⌋ mod L.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from caption.attention.hard import Multinoulli, one_hot
from caption.attention.scored import Aligned, ScoredAttention
from caption.decoders.lstm import LSTMDecoder
from caption.objectives.base import Captions, word_log_likelihoods
from caption.tensor_tree import Record


class Following(Multinoulli):
    """Looks in training where it is told; outside, as `Multinoulli`.

    Args:
        paths: (B, K) int64, the number of each hypothesis' path.
    """

    def __init__(self, paths: Tensor) -> None:
        super().__init__(expectation=0.0)
        self.paths = paths

    def start(self, images: int, hypotheses: int, like: Tensor) -> Record:
        """(B, K) the digits of the path that are yet to be followed."""
        return self.paths.to(like.device) if self.training else super().start(images, hypotheses, like)

    def forward(self, scores: Tensor, state: Record = None) -> Aligned:
        if not self.training:
            return super().forward(scores, state)
        log_weights = scores.log_softmax(-1)
        regions = scores.shape[-1]
        location = state % regions
        return Aligned(
            log_weights.exp(),
            read=one_hot(location, scores),
            state=state // regions,
            location=location,
            log_prob=log_weights.gather(-1, location[..., None]).squeeze(-1),
        )


@contextmanager
def following(decoder: LSTMDecoder, paths: Tensor) -> Iterator[None]:
    """Within it, the decoder's hard attention follows the paths with the given numbers (B, K) in training."""
    attention = decoder.attention
    if not isinstance(attention, ScoredAttention) or not isinstance(attention.alignment, Multinoulli):
        raise ValueError("paths are those of a ScoredAttention with Multinoulli alignment")
    own = attention.alignment
    attention.alignment = Following(paths)
    try:
        yield
    finally:
        attention.alignment = own


class Paths(NamedTuple):
    """All P = L^T paths of a caption, in no promised order; with gradient."""

    log_prob: Tensor
    """(P,) log p(s|a)."""
    log_likelihood: Tensor
    """(P,) log p(y|s,a)."""
    locations: Tensor
    """(P, T) int64."""

    @property
    def bound(self) -> Tensor:
        """L_s = Σ_s p(s|a) log p(y|s,a), eq. 10."""
        return (self.log_prob.exp() * self.log_likelihood).sum()

    @property
    def marginal(self) -> Tensor:
        """log p(y|a) = log Σ_s p(s|a) p(y|s,a), which L_s bounds from below."""
        return (self.log_prob + self.log_likelihood).logsumexp(0)


def every_path(decoder: LSTMDecoder, memory: Record, captions: Captions) -> Paths:
    """Follow all paths of one caption of one image, side by side.

    Args:
        decoder: in training mode, with hard attention, and without dropout.
        memory: of one image with L regions.
        captions: one caption, B = K = 1, of T steps.

    Raises:
        ValueError: more than one caption, or more than a million paths.
    """
    if captions.lengths.numel() != 1:
        raise ValueError(
            f"paths are enumerated for one caption at a time, not for {captions.lengths.numel()}"
        )
    steps = int(captions.lengths)
    number = memory.values.shape[1] ** steps
    if number > 10**6:
        raise ValueError(f"{memory.values.shape[1]} regions in {steps} steps make {number} paths: too many")
    copies = captions.repeated(number)
    with following(decoder, torch.arange(number)[None]):
        unrolled = decoder(memory, copies.words, copies.lengths)
    trace = unrolled.trace
    assert trace.log_prob is not None
    assert trace.location is not None
    log_likelihoods = word_log_likelihoods(unrolled, copies.targets)
    return Paths(
        unrolled.unpack(trace.log_prob)[0].sum(-1),
        unrolled.unpack(log_likelihoods)[0].sum(-1),
        unrolled.unpack(trace.location)[0, :, :steps],
    )
