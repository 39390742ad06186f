"""Regions of several encoders or layers joined to one view: dynamic meta-embeddings (a weighted sum), or their
concatenation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.core.regions import Regions, Views
from caption.encoders.refiners.base import (
    Refiner,
    prepared,
    require_views,
    to_map,
    to_vectors,
)


class JoinedViews(Refiner):
    """Base class of refiners that join several views to one, on the grid of the first view.

    The other views are resampled to that grid (bilinear, antialiased), without their masked regions.

    Args:
        size: length S of the new vectors.

    Raises:
        UserError: `size` is below 1; when built for one view.
    """

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.size = size

    def build(self, region_sizes: tuple[int, ...]) -> None:
        require_views(self, region_sizes)
        self.region_sizes = (self.size,)
        self.create_weights(region_sizes)

    def create_weights(self, region_sizes: tuple[int, ...]) -> None:
        """Create the weights for views with vectors of these lengths D. Called once."""
        raise NotImplementedError

    def join(self, vectors: list[Tensor], present: list[Tensor | None]) -> Tensor:
        """Vectors (B, L, D) and presence (B, L, 1) of each view -> (B, L, S).

        Presence is bool, True where the view has a region; None = everywhere.
        """
        raise NotImplementedError

    def grids(self, grids: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return grids[:1]

    def forward(self, views: Views) -> Views:
        first, *further = prepared(views, self)
        resampled = [(first.vectors, None), *(_resampled(view, first.grid) for view in further)]
        vectors, present = zip(*resampled, strict=True)
        return (first._replace(vectors=self.join([*vectors], [*present])),)


class MetaEmbeddingRefiner(JoinedViews):
    """a_i = Σ_v α_iv (P_v a_iv + b_v), α_i = softmax_v(w·(P_v a_iv + b_v) + b).

    Kiela, Wang and Cho 2018, "Dynamic Meta-Embeddings for Improved Sentence Representations", section 3, for regions in
    place of words. The views v are resampled as in `JoinedViews`; a view in which all regions around region i are
    masked is left out of its sum. A forward hook on `shares` receives the weights α (B, L, V), and may return edited
    weights. The paper's bias b is left out, because it cancels in the softmax.

    Args:
        size: length S of the new vectors.

    Raises:
        UserError: `size` is below 1; when built for one view.
    """

    def __init__(self, size: int = 256) -> None:
        super().__init__(size)
        self.shares = nn.Identity()

    def create_weights(self, region_sizes: tuple[int, ...]) -> None:
        self.project = nn.ModuleList(nn.Linear(region_size, self.size) for region_size in region_sizes)
        self.score = nn.Linear(self.size, 1, bias=False)

    def join(self, vectors: list[Tensor], present: list[Tensor | None]) -> Tensor:
        projected = [project(of_view) for project, of_view in zip(self.project, vectors, strict=True)]
        scores = [
            self.score(of_view) if real is None else self.score(of_view).masked_fill(~real, -torch.inf)
            for of_view, real in zip(projected, present, strict=True)
        ]
        shares = self.shares(torch.cat(scores, -1).softmax(-1))
        return torch.einsum("blv,blvs->bls", shares, torch.stack(projected, 2))


class ConcatenationRefiner(JoinedViews):
    """a_i = P [a_i1; …; a_iV] + b: the views joined without weights.

    A control for mechanisms that weigh views or attend between them: the same encoders without those weights. Kiela,
    Wang and Cho 2018, section 3, compare with it. Views are resampled as in `JoinedViews`; a view in which all regions
    around region i are masked gives zeros.

    Args:
        size: length S of the new vectors.

    Raises:
        UserError: `size` is below 1; when built for one view.
    """

    def create_weights(self, region_sizes: tuple[int, ...]) -> None:
        self.project = nn.Linear(sum(region_sizes), self.size)

    def join(self, vectors: list[Tensor], present: list[Tensor | None]) -> Tensor:
        return self.project(torch.cat(vectors, -1))


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
