"""Position encodings of regions in their grid, because self-attention ignores their order."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.encoders.refiners.base import at_least_one
from caption.errors import UserError
from caption.parts import Part
from caption.regions import Grid


class Positions(Part, nn.Module):
    """Base class of position encodings: vectors added to the regions, or biases added to the scores."""

    def build(self, size: int, heads: int) -> None:
        """Create the weights for vectors of length S = `size` and M = `heads` heads. Called once.

        Raises:
            UserError: the vectors' length cannot be divided between rows and columns.
        """

    def vectors(self, grid: Grid, like: Tensor) -> Tensor | None:
        """(L, S) vectors added to the regions before the first layer, with device and type of `like`; or None."""
        return None

    def biases(self, grid: Grid) -> Tensor | None:
        """(M, L, L) biases that each layer adds to the score of query region i and key region j; or None."""
        return None


class SinusoidalPositions(Positions):
    """p_i = [s(row of i); s(column of i)], s(n)[2k] = sin(n / 10000^(2k/d)), s(n)[2k+1] = cos(n / 10000^(2k/d)).

    The sinusoids are those of Vaswani et al. 2017, "Attention Is All You Need", section 3.5. Half of the features, d =
    S/2, encode the row and half the column (Parmar et al. 2018, "Image Transformer", section 3). They have no weights
    and work for grids of any size.
    """

    def build(self, size: int, heads: int) -> None:
        if size % 4:
            raise UserError(
                f"SinusoidalPositions needs a sine and a cosine for rows and for columns, but the vectors have length "
                f"{size}: choose a size divisible by 4"
            )
        self.size = size

    def vectors(self, grid: Grid, like: Tensor) -> Tensor:
        half = self.size // 2
        exponents = torch.arange(0, half, 2, device=like.device, dtype=like.dtype) / half
        places = torch.stack(rows_and_cols(grid, like.device)).to(like.dtype)  # (2, L)
        angles = places[..., None] / 10_000**exponents  # (2, L, S/4)
        waves = torch.stack((angles.sin(), angles.cos()), -1).flatten(2)  # (2, L, S/2)
        return torch.cat((waves[0], waves[1]), -1)


class LearnedPositions(Positions):
    """p_i = [e_row[row of i]; e_col[column of i]], with a learned vector of length S/2 for each row and each column.

    Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", appendix D.4, "2-dimensional positional embedding".

    Args:
        rows: of the largest grid.
        cols: of the largest grid.

    Raises:
        UserError: `rows` or `cols` is below 1; in use, a grid has more rows or columns.
    """

    def __init__(self, rows: int = 32, cols: int = 32) -> None:
        super().__init__()
        at_least_one(rows=rows, cols=cols)
        self.grid = (rows, cols)

    def build(self, size: int, heads: int) -> None:
        if size % 2:
            raise UserError(
                f"LearnedPositions divides vectors between rows and columns, but they have length {size}: choose an "
                "even size"
            )
        self.row = nn.Parameter(torch.randn(self.grid[0], size // 2) * 0.02)
        self.col = nn.Parameter(torch.randn(self.grid[1], size // 2) * 0.02)

    def vectors(self, grid: Grid, like: Tensor) -> Tensor:
        for name, count, limit in zip(("rows", "cols"), grid, self.grid, strict=True):
            if count > limit:
                raise UserError(f"LearnedPositions has {limit} {name} and the grid has {count}: raise {name}")
        rows, cols = rows_and_cols(grid, like.device)
        return torch.cat((self.row[rows], self.col[cols]), -1)


class RelativePositions(Positions):
    """score_ij = q_i·k_j / √d + b_m[clip(row of j − row of i), clip(column of j − column of i)], clip to ±k.

    A learned bias for each head and offset in two dimensions (Liu et al. 2021, "Swin Transformer", eq. 4). Offsets
    are clipped (Shaw et al. 2018, "Self-Attention with Relative Position Representations", section 3.2), so that
    the table does not depend on the size of the grid. All layers share the table.

    Args:
        distance: k, in regions; larger offsets are clipped to it.

    Raises:
        UserError: `distance` is below 1.
    """

    def __init__(self, distance: int = 7) -> None:
        super().__init__()
        at_least_one(distance=distance)
        self.distance = distance

    def build(self, size: int, heads: int) -> None:
        offsets = 2 * self.distance + 1
        self.table = nn.Parameter(torch.randn(heads, offsets, offsets) * 0.02)

    def biases(self, grid: Grid) -> Tensor:
        places = rows_and_cols(grid, self.table.device)
        rows, cols = (
            (place[None] - place[:, None]).clamp(-self.distance, self.distance) + self.distance
            for place in places
        )
        return self.table[:, rows, cols]


def rows_and_cols(grid: Grid, device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and column of each region, (L,) int64 each."""
    regions = torch.arange(grid[0] * grid[1], device=device)
    return regions // grid[1], regions % grid[1]
