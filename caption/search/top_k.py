"""Top-k and sampling over a vocabulary of thousands of words, in blocks of words.

Each block is first reduced to one number, in one pass over the vocabulary at the speed of memory; then only the words
of the few relevant blocks are examined. The plain forms are `Tensor.topk`, and a search in double precision for the
first cumulated weight that exceeds a number.

Gain: for 320 hypotheses and 9,500 words, the plain forms take 2.0 times (the 5 largest), 5.1 times (the largest) and
10.7 times (a draw) as long (one CPU thread).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 64
"""Words in a block; the last block may have fewer."""


def top_k(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values and their indices, as in `values.topk(count)`, but faster.

    Args:
        values: (..., V), without NaN.
        count: N; if V is smaller, V values are returned.

    Returns:
        (..., N) values, largest first, and (..., N) int64 indices.
    """
    words = values.shape[-1]
    if words <= count * BLOCK:
        return values.topk(min(count, words), dim=-1)
    # The N largest values are all in the N blocks with the largest maxima.
    maxima = _block_reductions(values, torch.amax)
    candidates, exists = _words_of(maxima.topk(count, dim=-1).indices, words)
    # Clamped, so that values of −inf rank above words that do not exist.
    ranks = values.gather(-1, candidates).clamp_min(torch.finfo(values.dtype).min)
    best = ranks.masked_fill(~exists, -torch.inf).topk(count, dim=-1).indices
    indices = candidates.gather(-1, best)
    return values.gather(-1, indices), indices


def inverse_cdf(weights: Tensor, uniform: Tensor) -> Tensor:
    """The index at which the cumulated weights first exceed the given part of their sum: inverse transform sampling.

    Args:
        weights: (..., V) non-negative; the sum need not be 1. A row of NaN gives an arbitrary index.
        uniform: (...) double, in [0, 1); 1 is treated as slightly less.

    Returns:
        (...) int64, never the index of a weight of 0 unless all are 0.
    """
    block, uniform = _inverse_cdf(_block_reductions(weights, torch.sum), uniform)
    candidates, exists = _words_of(block[..., None], weights.shape[-1])
    index, _ = _inverse_cdf(weights.gather(-1, candidates).masked_fill(~exists, 0.0), uniform)
    return candidates.gather(-1, index[..., None]).squeeze(-1)


def _inverse_cdf(weights: Tensor, uniform: Tensor) -> tuple[Tensor, Tensor]:
    """The index, (...), and the share of its weight below the target, in [0, 1]."""
    weights = weights.double()
    cumulated = weights.cumsum(dim=-1)
    # Rounding may make the share within a block 1, but no cumulated weight exceeds the total.
    target = uniform.clamp(0.0, 1.0 - torch.finfo(torch.float64).eps)[..., None] * cumulated[..., -1:]
    # A cumulated sum computed in parallel may rise by a rounding error at a weight of 0.
    index = ((cumulated > target) & (weights > 0)).to(torch.uint8).argmax(dim=-1, keepdim=True)
    before = pad(cumulated, (1, 0)).gather(-1, index)
    share = (target - before) / weights.gather(-1, index)
    return index.squeeze(-1), share.squeeze(-1)


def _block_reductions(values: Tensor, reduce: Callable[..., Tensor]) -> Tensor:
    """Each block reduced to one number: (..., V) -> (..., blocks)."""
    blocks = values.shape[-1] // BLOCK
    full, last = values.split((blocks * BLOCK, values.shape[-1] - blocks * BLOCK), dim=-1)
    reduced = reduce(full.unflatten(-1, (blocks, BLOCK)), dim=-1)
    return torch.cat((reduced, reduce(last, dim=-1, keepdim=True)), dim=-1) if last.shape[-1] else reduced


def _words_of(blocks: Tensor, words: int) -> tuple[Tensor, Tensor]:
    """The indices (..., n · BLOCK) of the words of blocks (..., n), and whether each word exists."""
    indices = (blocks[..., None] * BLOCK + torch.arange(BLOCK, device=blocks.device)).flatten(-2)
    return indices.clamp_max(words - 1), indices < words
