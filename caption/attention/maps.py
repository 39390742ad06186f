"""Arithmetic of attention maps: masks, weighted sums, positions of cells, and maps by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from caption.core.tensor_tree import TensorTree


def hide_masked(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Scores (B, ..., L) with -inf where the mask (B, L) is False; None = no region is masked."""
    if mask is None:
        return scores
    return scores.masked_fill(~mask.view(len(mask), *[1] * (scores.dim() - 2), -1), -torch.inf)


def weighted_sum(weights: Tensor, vectors: Tensor) -> Tensor:
    """Σ_i α_i a_i: weights (B, ..., K, L), vectors (B, ..., L, D) -> (B, ..., K, D) in the precision of the vectors."""
    # Autocast would convert the vectors, the largest tensor, at every step.
    with torch.autocast(vectors.device.type, enabled=False):
        return weights.to(vectors.dtype) @ vectors


def single_precision(tensor: Tensor) -> Tensor:
    """The tensor in float32 at least: sums of weights and positions on a grid are too coarse in bf16."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def categorical(weights: Tensor) -> Tensor:
    """(...,) int64 indices, each drawn with probabilities proportional to weights (..., L).

    The arg max of weights over exponential numbers has this distribution. `Tensor.multinomial` draws the same numbers,
    but checks the weights, for which the host waits for a GPU.
    """
    return (weights / torch.empty_like(weights).exponential_()).argmax(-1)


def overlap(rows: Tensor) -> Tensor:
    """‖R Rᵀ − I‖²_F of S rows (..., S, N), the mean over "...": 0 if they are orthogonal and of length 1."""
    products = rows @ rows.mT - torch.eye(rows.shape[-2], device=rows.device)
    return products.square().sum((-2, -1)).mean()


def cell_positions(grid: tuple[int, int], like: Tensor) -> Tensor:
    """(L, 2) row and column of each region, counted from 0, in the dtype and on the device of `like`."""
    rows, cols = (torch.arange(count, dtype=like.dtype, device=like.device) for count in grid)
    return torch.cartesian_prod(rows, cols).view(-1, 2)


def named_maps(maps: TensorTree) -> dict[str, Tensor]:
    """Maps by name; a single tensor is called "weights"."""
    return {"weights": maps} if isinstance(maps, Tensor) else dict(maps._asdict())


def with_maps(maps: TensorTree, edited: Mapping[str, Tensor]) -> TensorTree:
    """The maps with some tensors replaced, by the names of `named_maps`; the others are kept."""
    return edited.get("weights", maps) if isinstance(maps, Tensor) else maps._replace(**edited)


def has_location(location: Tensor) -> Tensor:
    """(B, K) bool: where a location was chosen; see `ReadOutput.location`."""
    return ~torch.isnan(location).any(-1) if location.is_floating_point() else location >= 0


def sum_of_penalties(penalties: Iterable[Tensor | None]) -> Tensor | None:
    """The sum of the penalties that are not None; None if all are."""
    present = [penalty for penalty in penalties if penalty is not None]
    return torch.stack(present).sum() if present else None
