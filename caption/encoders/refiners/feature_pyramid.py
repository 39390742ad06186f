"""A feature pyramid: coarse grids with strong semantics refine fine grids with precise positions."""

from __future__ import annotations

from itertools import pairwise

from torch import nn
from torch.nn import functional

from caption.core.errors import UserError
from caption.core.regions import Views
from caption.encoders.refiners.base import (
    Refiner,
    prepared,
    require_views,
    to_map,
    to_vectors,
    zero_masked,
)


class FeaturePyramidRefiner(Refiner):
    """M_n = W_n a_n + up(M_(n+1)), without the second term at the coarsest view; the result is conv3x3_n(M_n).

    Lin et al. 2017, "Feature Pyramid Networks for Object Detection", section 3: lateral 1x1 convolutions W_n, nearest
    neighbour upsampling from the next coarser view, a 3x3 convolution to reduce aliasing, no non-linearity. Views keep
    their grids. Masked regions are 0 in upsampling and convolution, like the padding outside the image.

    Args:
        size: length S of the new vectors of all views.

    Raises:
        UserError: `size` is below 1; when built for one view; in use, the views are not ordered from fine to coarse.
    """

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.size = size

    def build(self, region_sizes: tuple[int, ...]) -> None:
        require_views(self, region_sizes)
        self.region_sizes = (self.size,) * len(region_sizes)
        self.lateral = nn.ModuleList(nn.Linear(region_size, self.size) for region_size in region_sizes)
        self.smooth = nn.ModuleList(nn.Conv2d(self.size, self.size, 3, padding=1) for _ in region_sizes)

    def forward(self, views: Views) -> Views:
        for fine, coarse in pairwise(view.grid for view in views):
            if coarse[0] > fine[0] or coarse[1] > fine[1]:
                raise UserError(
                    f"FeaturePyramidRefiner takes views from fine to coarse, but the grid {fine[0]}x{fine[1]} is "
                    f"followed by {coarse[0]}x{coarse[1]}: change the order of `layer` or `encoders` of the encoder"
                )
        refined = []
        coarser = None
        levels = list(zip(prepared(views, self), self.lateral, self.smooth, strict=True))
        for view, lateral, smooth in reversed(levels):
            merged = lateral(view.vectors)
            if coarser is not None:
                merged = merged + to_vectors(functional.interpolate(coarser, view.grid, mode="nearest-exact"))
            coarser = to_map(zero_masked(merged, view.mask), view.grid)
            refined.append(view._replace(vectors=to_vectors(smooth(coarser))))
        return tuple(reversed(refined))
