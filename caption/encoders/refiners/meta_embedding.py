"""Regions of several encoders or layers as one: dynamic meta-embeddings, a weighted sum; and their concatenation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.encoders.refiners.base import (
    Refiner,
    at_least_one,
    prepared,
    require_views,
    to_map,
    to_vectors,
)
from caption.kernels.linear import Linear
from caption.regions import Regions, Views


class MetaEmbeddingRefiner(Refiner):
    """a_i = Σ_v α_iv (P_v a_iv + b_v), α_i = softmax_v(w·(P_v a_iv + b_v) + b).

    Kiela, Wang and Cho 2018, "Dynamic Meta-Embeddings for Improved Sentence Representations", section 3, for regions in
    place of words. The views v are resampled to the grid of the first one (bilinear, antialiased); the result is one
    view. Masked regions are left out of the resampling, and a view in which all regions around region i are masked is
    left out of its sum. A forward hook on `shares` receives the weights α (B, L, V), and may return others. The paper's
    bias b is left out, because it cancels in the softmax.

    Args:
        size: length S of the new vectors.

    Raises:
        UserError: there is only one view, or `size` is below 1.
    """

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        at_least_one(size=size)
        self.size = size
        self.shares = nn.Identity()

    def build(self, region_sizes: tuple[int, ...]) -> None:
        require_views(self, region_sizes)
        self.region_sizes = (self.size,)
        self.project = nn.ModuleList(Linear(region_size, self.size) for region_size in region_sizes)
        self.score = Linear(self.size, 1, bias=False)

    def grids(self, grids: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return grids[:1]

    def forward(self, views: Views) -> Views:
        first, *others = prepared(views, self)
        resampled = [(first.vectors, None), *(_resampled(view, first.grid) for view in others)]
        projected, scores = [], []
        for project, (vectors, present) in zip(self.project, resampled, strict=True):
            projected.append(project(vectors))
            score = self.score(projected[-1])
            scores.append(score if present is None else score.masked_fill(~present, -torch.inf))
        shares = self.shares(torch.cat(scores, -1).softmax(-1))
        return (first._replace(vectors=torch.einsum("blv,blvs->bls", shares, torch.stack(projected, 2))),)


class ConcatenationRefiner(Refiner):
    """a_i = P [a_i1; …; a_iV] + b: the views joined without weights.

    The control of mechanisms that weigh views or attend between them: the same encoders without those weights. Kiela,
    Wang and Cho 2018, section 3, compare with it. Views are resampled as in `MetaEmbeddingRefiner`; where all regions
    around region i are masked, a view gives zeros.

    Args:
        size: length S of the new vectors.

    Raises:
        UserError: there is only one view, or `size` is below 1.
    """

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        at_least_one(size=size)
        self.size = size

    def build(self, region_sizes: tuple[int, ...]) -> None:
        require_views(self, region_sizes)
        self.region_sizes = (self.size,)
        self.project = Linear(sum(region_sizes), self.size)

    def grids(self, grids: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return grids[:1]

    def forward(self, views: Views) -> Views:
        first, *others = prepared(views, self)
        joined = [first.vectors, *(_resampled(view, first.grid)[0] for view in others)]
        return (first._replace(vectors=self.project(torch.cat(joined, -1))),)


def _resampled(view: Regions, grid: tuple[int, int]) -> tuple[Tensor, Tensor | None]:
    """Vectors (B, L, D) on another grid, and (B, L, 1) bool, True where a region is not masked; None = everywhere."""
    if view.mask is None:
        return _resample(view.vectors, view.grid, grid), None
    real = _resample(view.mask[..., None].to(view.vectors.dtype), view.grid, grid)
    present = real > 0
    vectors = _resample(view.vectors, view.grid, grid) / real.masked_fill(~present, 1)
    return vectors, present


def _resample(vectors: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    if old == new:
        return vectors
    maps = functional.interpolate(to_map(vectors, old), new, mode="bilinear", antialias=True)
    return to_vectors(maps)
