"""Attention = a score joined to an alignment, which vary independently."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, Look, Memory
from caption.parts import Part
from caption.tensor_tree import Record


class Score(Part, nn.Module):
    """How well a query and a region go together: the f_att of eq. 4."""

    def build(self, region_size: int, query_size: int) -> None:
        """Create the weights. Called once."""
        raise NotImplementedError

    def keys(self, regions: Tensor) -> Tensor:
        """(B, L, D) regions -> (B, L, A) keys: the part of the score that depends on the image alone."""
        raise NotImplementedError

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """Queries (B, K, H) and keys (B, L, A) -> scores e (B, K, L)."""
        raise NotImplementedError


class Aligned(NamedTuple):
    """What an alignment makes of the scores."""

    weights: Tensor
    """(B, K, L) the distribution α."""
    read: Tensor
    """(B, K, L) the weights with which the regions are summed into the context: α itself, or a one-hot s."""
    state: Record = None
    location: Tensor | None = None
    log_prob: Tensor | None = None


class Alignment(Part, nn.Module):
    """How scores become a choice of regions: the φ of eq. 6."""

    def start(self, images: int, hypotheses: int, like: Tensor) -> Record:
        """State before the first step, on the device of `like`; None for most."""
        return None

    def forward(self, scores: Tensor, state: Record = None) -> Aligned:
        """Scores (B, K, L), -inf where masked -> weights."""
        raise NotImplementedError


class ScoredAttention(Attention):
    """z = Σ_i s_i a_i, with s an alignment of the scores e_i = f_att(a_i, h) (eqs. 4 to 6).

    Args:
        score: how a query and a region are compared.
        alignment: how the scores become weights.
    """

    def __init__(self, score: Score, alignment: Alignment) -> None:
        super().__init__()
        self.score = score
        self.alignment = alignment

    def build(self, region_size: int, query_size: int) -> None:
        self.score.build(region_size, query_size)
        self.context_size = region_size

    def project(self, regions: Tensor, mask: Tensor | None = None) -> Memory:
        return Memory(self.score.keys(regions), regions, mask)

    def start(self, memory: Memory, hypotheses: int) -> Record:
        return self.alignment.start(len(memory.values), hypotheses, like=memory.values)

    def forward(self, query: Tensor, memory: Memory, state: Record = None) -> Look:
        scores = self.score(query, memory.keys)
        if memory.mask is not None:
            scores = scores.masked_fill(~memory.mask[:, None], -torch.inf)
        aligned = self.alignment(scores, state)
        # In the precision of the values: autocast would convert them, the largest tensor there is, at every step.
        with torch.autocast(memory.values.device.type, enabled=False):
            context = aligned.read.to(memory.values.dtype) @ memory.values
        return Look(context, aligned.weights, aligned.state, aligned.location, aligned.log_prob)
