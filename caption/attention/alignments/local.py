"""Local attention (Luong et al. 2015, section 3.2) in two dimensions: only a window of the grid is read."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.maps import cell_positions, single_precision, weighted_sum
from caption.attention.scored import Alignment
from caption.core.errors import UserError
from caption.core.regions import WeightProperties
from caption.core.tensor_tree import TensorTree


class PredictedWindow(Alignment):
    """Local-p: α_i = softmax_window(e)_i · exp(−‖x_i − p‖² / 2σ²), with the centre p predicted from the state.

    p = (rows − 1, cols − 1) · σ(V tanh(W h)) in cells, σ = reach / 2 (eqs. 9 and 10). The window consists of the cells
    within `reach` of p in both directions. Weights outside are 0, and those inside sum to less than 1. The gradient of
    p comes from the Gaussian.

    Args:
        reach: D, in cells.
        size: width of the prediction's hidden layer.

    Raises:
        UserError: `reach` is below 1, so a window could contain no cell.
    """

    properties = WeightProperties(sums_to_one=False)

    def __init__(self, reach: float = 2.0, size: int = 128) -> None:
        super().__init__()
        _check_reach(reach)
        self.reach = reach
        self.size = size

    def build(self, query_sizes: QuerySizes) -> None:
        self.centre = nn.Sequential(
            nn.Linear(query_sizes.hidden, self.size), nn.Tanh(), nn.Linear(self.size, 2)
        )

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        cells = cell_positions(memory.grid, scores)
        centre = single_precision(self.centre(query.hidden)).sigmoid() * cells.amax(0)  # (B, K, 2)
        offsets = cells - centre[:, :, None]
        weights = _softmax_within(scores, offsets, self.reach)
        gaussian = (-offsets.square().sum(-1) / (2 * (self.reach / 2) ** 2)).exp()
        return weights * gaussian


class FollowingWindow(Alignment):
    """A window centred on the mean position of the previous step's weights, Σ_i α[t-1,i] x_i.

    Luong's local-m centres the window on the time step, because sentences align monotonically. Regions have no such
    order, so this window follows the previous step instead. The first step reads the whole grid.

    Args:
        reach: extent of the window from the centre in each direction, in cells.

    Raises:
        UserError: `reach` is below 1, so a window could contain no cell.
    """

    def __init__(self, reach: float = 2.0) -> None:
        super().__init__()
        _check_reach(reach)
        self.reach = reach

    def start(self, memory: GridMemory, hypotheses: int) -> Tensor:
        """(B, K, L) NaN: there are no previous weights."""
        images, regions = memory.values.shape[:2]
        return memory.values.new_full((images, hypotheses, regions), torch.nan)

    def forward(self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        cells = cell_positions(memory.grid, scores)
        previous = state.to(scores.dtype)
        total = previous.sum(-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).tiny)
        centre = weighted_sum(previous, cells) / total  # (B, K, 2)
        offsets = (cells - centre[:, :, None]).nan_to_num(nan=0.0)
        return _softmax_within(scores, offsets, self.reach)

    def carry(self, weights: Tensor, state: TensorTree) -> Tensor:
        """(B, K, L) the weights that were read, detached: the window's position has no gradient."""
        return weights.detach()


def _check_reach(reach: float) -> None:
    if not reach >= 1:
        raise UserError(f"reach {reach} of a window must be at least 1, so that it always contains a cell")


def _softmax_within(scores: Tensor, offsets: Tensor, reach: float) -> Tensor:
    """Softmax of scores (B, K, L) over the cells whose offsets (B, K, L, 2) from the centre are at most `reach`.

    If the mask leaves no cell inside, the softmax is over all cells.
    """
    inside = (offsets.abs() <= reach).all(-1)
    local = scores.masked_fill(~inside, -torch.inf)
    empty = (local == -torch.inf).all(-1, keepdim=True)
    return torch.where(empty, scores, local).softmax(-1)
