"""The most probable words, and a word by chance, out of a vocabulary of thousands: by way of its blocks.

Both questions want one number of most words, how large they are. Asked of blocks of words first, that is one
pass over the vocabulary at the speed at which memory is read; the words of the few blocks that matter are then looked
at one by one. Sorting, or cumulating in double precision, all words takes several times as long.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK = 64
"""Words in a block; the last block may have fewer."""


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values and where they are: `values.topk(count)`, but faster.

    Args:
        values: (..., V), without NaN.
        count: N; where V is smaller, V of them are returned.

    Returns:
        (..., N) values, largest first, and (..., N) int64 places. Places of −inf need not differ from each other.
    """
    words = values.shape[-1]
    if words <= count * BLOCK:
        return values.topk(min(count, words), dim=-1)
    # Each of the N largest values is in one of the N blocks with the largest maxima.
    maxima = _of_each_block(values, torch.amax)
    places, inside = _places(maxima.topk(count, dim=-1).indices, words)
    best, index = values.gather(-1, places).masked_fill(~inside, -torch.inf).topk(count, dim=-1)
    return best, places.gather(-1, index)


def invert(weights: Tensor, chance: Tensor) -> Tensor:
    """Where the cumulated weights first exceed the given part of their sum.

    Args:
        weights: (..., V) non-negative, not necessarily of sum 1; a row of NaN gives an arbitrary place.
        chance: (...) double, in [0, 1); 1 is taken for a little less.

    Returns:
        (...) int64, never a place of weight 0 while there is another.
    """
    block, chance = _invert(_of_each_block(weights, torch.sum), chance)
    places, inside = _places(block[..., None], weights.shape[-1])
    place, _ = _invert(weights.gather(-1, places).masked_fill(~inside, 0.0), chance)
    return places.gather(-1, place[..., None]).squeeze(-1)


def _invert(weights: Tensor, chance: Tensor) -> tuple[Tensor, Tensor]:
    """The place, (...), and how far into its own weight the chance reaches, in [0, 1] again."""
    weights = weights.double()
    reached = weights.cumsum(dim=-1)
    # Rounding may make the chance within a block 1, and nothing exceeds the whole sum.
    wanted = chance.clamp(0.0, 1.0 - torch.finfo(torch.float64).eps)[..., None] * reached[..., -1:]
    # A sum cumulated in parallel may rise by a rounding error where the weight is 0.
    place = ((reached > wanted) & (weights > 0)).to(torch.uint8).argmax(dim=-1, keepdim=True)
    before = pad(reached, (1, 0)).gather(-1, place)
    rest = (wanted - before) / weights.gather(-1, place)
    return place.squeeze(-1), rest.squeeze(-1)


def _of_each_block(values: Tensor, reduce: Callable[..., Tensor]) -> Tensor:
    """(..., V) -> (..., blocks)."""
    blocks = values.shape[-1] // BLOCK
    whole, last = values.split((blocks * BLOCK, values.shape[-1] - blocks * BLOCK), dim=-1)
    reduced = reduce(whole.unflatten(-1, (blocks, BLOCK)), dim=-1)
    return torch.cat((reduced, reduce(last, dim=-1, keepdim=True)), dim=-1) if last.shape[-1] else reduced


def _places(blocks: Tensor, words: int) -> tuple[Tensor, Tensor]:
    """Blocks (..., n) -> the places of their words (..., n · BLOCK), and whether there is such a word."""
    places = (blocks[..., None] * BLOCK + torch.arange(BLOCK, device=blocks.device)).flatten(-2)
    return places.clamp_max(words - 1), places < words
