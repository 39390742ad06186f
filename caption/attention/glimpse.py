"""Location-wise attention: the query places a window on the feature map, instead of weighing regions.

A window is n×n points around a centre, each read by bilinear interpolation, as in `torch.nn.functional.grid_sample`
with `align_corners=False` and border padding. Interpolation is a weighted sum of cells, so the window has a map of
weights. The share of masked cells is given to the real ones; a window that covers only masked cells reads the mean of
all real cells.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, ReadOutput, WeighOutput
from caption.attention.maps import single_precision, weighted_sum
from caption.attention.options import above_zero, at_least_one
from caption.attention.stochastic import AtTest, Stochastic
from caption.core.errors import UserError
from caption.core.tensor_tree import TensorTree


class WindowAttention(Attention):
    """Soft location-wise attention: z is the mean of n×n points around a predicted centre, at a predicted distance.

    The centre is (x, y) = σ(W h) across the grid; the points are within ± s of it, s = s_max σ(w · h), as in the
    attention windows of Gregor et al. 2015 (DRAW, section 3.2) with the bilinear interpolation of Jaderberg et al. 2015
    (section 3.3). Everything is differentiable.

    Args:
        points: n, in each direction.
        largest: s_max as a share of the grid.

    Raises:
        UserError: `points` is below 1.
    """

    def __init__(self, points: int = 3, largest: float = 0.5) -> None:
        super().__init__()
        at_least_one(self, points=points)
        self.points = points
        self.largest = largest

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.place = nn.Linear(query_sizes.hidden, 3)

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        centre, size = single_precision(self.place(query.hidden)).sigmoid().split((2, 1), -1)
        return WeighOutput(window(centre, self.largest * size, self.points, memory.grid, memory.mask))


class GlimpseAttention(Stochastic, Attention):
    """Hard location-wise attention: samples a point (x, y) ~ N(μ, σ²) and reads a small window around it.

    μ = σ(W h) across the grid (Mnih et al. 2014, section 3.1). The point's density has a gradient, and an estimator
    such as `caption.objectives.Reinforce` trains it. In training, a caption reads at μ with probability `expectation`
    at all its steps. The map is the window around μ; `location` is the point, clamped to the grid.

    Args:
        deviation: σ, as a share of the grid.
        points: n×n points are read.
        size: distance of the outer points from the centre, as a share of the grid.
        expectation: probability of reading at μ in training.
        at_test: "expectation" and "argmax" read at μ, "sample" at a drawn point.

    Raises:
        UserError: `deviation` is not positive, `points` is below 1, or `expectation` no probability.
    """

    def __init__(
        self,
        deviation: float = 0.1,
        points: int = 2,
        size: float = 0.1,
        expectation: float = 0.5,
        at_test: AtTest = "expectation",
    ) -> None:
        super().__init__(at_test)
        above_zero(self, deviation=deviation)
        at_least_one(self, points=points)
        if not 0 <= expectation <= 1:
            raise UserError(f"expectation must be a probability, not {expectation}")
        self.deviation = deviation
        self.points = points
        self.size = size
        self.expectation = expectation

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.place = nn.Linear(query_sizes.hidden, 2)

    def start(self, memory: GridMemory, hypotheses: int) -> Tensor:
        """(B, K) bool: True for captions that sample their points."""
        shape, device = (memory.values.shape[0], hypotheses), memory.values.device
        if not self.training:
            return torch.full(shape, self.at_test == "sample", device=device)
        return torch.rand(shape, device=device) >= self.expectation

    def _window(self, centre: Tensor, memory: GridMemory) -> Tensor:
        size = torch.full_like(centre[..., :1], self.size)
        return window(centre, size, self.points, memory.grid, memory.mask)

    def weigh(self, query: Query, memory: GridMemory, state: Tensor) -> WeighOutput:
        centre = single_precision(self.place(query.hidden)).sigmoid()
        return WeighOutput(self._window(centre, memory), (centre, state))

    def read(
        self, maps: Tensor, query: Query, memory: GridMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        """Read at a point sampled from N(μ, σ²) and clamped to the grid if the hypothesis samples; else at μ.

        Edited maps are read as they are. The location (B, K, 2) is the point as shares of the grid's width and height,
        NaN if none was sampled; `log_prob` (B, K) is its log-density, 0 if none was sampled.
        """
        nowhere = maps.new_full((*maps.shape[:2], 2), torch.nan)
        if weighed is None or maps is not weighed.maps:  # edited maps are read as they are
            return ReadOutput(weighted_sum(maps, memory.values), nowhere, nowhere.new_zeros(maps.shape[:2]))
        centre, sampled = weighed.state
        density = torch.distributions.Normal(
            centre, torch.full_like(centre, self.deviation), validate_args=False
        )
        draws = self.training or self.at_test == "sample"  # else a graph can be exported
        # Without a wait for the GPU, which `density.sample()` asks whether all deviations are positive.
        noise = torch.randn_like(centre) if draws else 0.0
        point = centre.detach() + self.deviation * noise
        location = point.clamp(0, 1)  # the Gaussian reaches beyond the grid
        weights = torch.where(sampled[..., None], self._window(location, memory), maps)
        return ReadOutput(
            weighted_sum(weights, memory.values),
            torch.where(sampled[..., None], location, nowhere),
            density.log_prob(point).sum(-1).where(sampled, 0.0),
        )

    def carry(self, maps: Tensor, weighed: WeighOutput) -> Tensor:
        return weighed.state[1]


def window(
    centre: Tensor, size: Tensor, points: int, grid: tuple[int, int], mask: Tensor | None = None
) -> Tensor:
    """The weights of a grid's cells in a window.

    Args:
        centre: (B, K, 2) x and y across the grid, 0 to 1.
        size: (B, K, 1) distance of the outer points from the centre, as a share of the grid.
        points: n in each direction, evenly spaced.
        grid: (rows, cols).
        mask: (B, L), see `Regions`.

    Returns:
        (B, K, L), sum 1.
    """
    steps = torch.linspace(-1, 1, points, dtype=centre.dtype, device=centre.device)
    offsets = size * (steps if points > 1 else 0 * steps)
    across, down = (
        _interpolated(centre[..., axis, None] + offsets, cells)
        for axis, cells in ((0, grid[1]), (1, grid[0]))
    )
    weights = (down[..., :, None] * across[..., None, :]).flatten(-2)
    if mask is None:
        return weights
    real = mask[:, None].to(weights.dtype)
    weights = weights * real
    total = weights.sum(-1, keepdim=True)
    share = weights / total.clamp_min(torch.finfo(weights.dtype).tiny)
    return torch.where(total > 0, share, real / real.sum(-1, keepdim=True))


def _interpolated(positions: Tensor, cells: int) -> Tensor:
    """Positions (..., n) from 0 to 1 along a side of the grid -> (..., cells), the mean of their interpolation
    weights."""
    index = (positions * cells - 0.5).clamp(0, cells - 1)
    cell = torch.arange(cells, dtype=positions.dtype, device=positions.device)
    return (1 - (index[..., None] - cell).abs()).clamp_min(0).mean(-2)
