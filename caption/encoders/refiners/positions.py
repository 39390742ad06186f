"""Position encodings of regions in their grid, since self-attention ignores their order."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.attention.options import above_zero, at_least_one
from caption.attention.scaled_dot_product import ABSOLUTE, Relative
from caption.core.errors import UserError
from caption.core.parts import Part
from caption.core.regions import Grid

SINUSOID = 0.5**0.5
"""Root mean square of the sinusoids of Vaswani et al.: sin² + cos² = 1."""
SMALL = 0.02
"""Standard deviation of learned positions before training, as in Dosovitskiy et al. 2021 and Liu et al. 2021."""


class Positions(Part, nn.Module):
    """Base class of position encodings. Absolute ones add vectors to the regions; relative ones change the scores, keys
    or values of a pair of regions."""

    def build(self, size: int, heads: int) -> None:
        """Create the weights for vectors of length S = `size` and M = `heads` heads. Called once.

        Raises:
            UserError: the vectors' length cannot be divided between rows and columns.
        """

    def vectors(self, grid: Grid, like: Tensor) -> Tensor | None:
        """(L, S) vectors added to the regions before the first layer, with device and type of `like`; or None."""
        return None

    def relative(self, grid: Grid) -> Relative:
        """Terms that each layer adds to scores, keys and values, by the offset of key region j from query region i."""
        return ABSOLUTE


class SinusoidalPositions(Positions):
    """p_i = √2 c [s(row of i); s(column of i)], s(n)[2k] = sin(n / 10000^(2k/d)), s(n)[2k+1] = cos(n / 10000^(2k/d)).

    The sinusoids are those of Vaswani et al. 2017, "Attention Is All You Need", section 3.5. Half of the features, d =
    S/2, encode the row and half the column (Parmar et al. 2018, "Image Transformer", section 3). They have no weights
    and work for grids of any size.

    Args:
        scale: c, the root mean square of the entries of p, above 0; by default √½, the sinusoids unscaled.
    """

    def __init__(self, scale: float = SINUSOID) -> None:
        super().__init__()
        above_zero(self, scale=scale)
        self.scale = scale

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
        positions = torch.stack(rows_and_cols(grid, like.device)).to(like.dtype)  # (2, L)
        angles = positions[..., None] / 10_000**exponents  # (2, L, S/4)
        waves = torch.stack((angles.sin(), angles.cos()), -1).flatten(2)  # (2, L, S/2)
        return torch.cat((waves[0], waves[1]), -1) * (self.scale / SINUSOID)


class LearnedPositions(Positions):
    """p_i = [e_row[row of i]; e_col[column of i]], with a learned vector of length S/2 for each row and each column.

    Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words", appendix D.4, "2-dimensional positional embedding".

    Args:
        rows: of the largest grid.
        cols: of the largest grid.
        scale: the standard deviation of the vectors' entries before training, above 0.

    Raises:
        UserError: `rows` or `cols` is below 1; in use, a grid has more rows or columns.
    """

    def __init__(self, rows: int = 32, cols: int = 32, scale: float = SMALL) -> None:
        super().__init__()
        at_least_one(self, rows=rows, cols=cols)
        self.grid = (rows, cols)
        above_zero(self, scale=scale)
        self.scale = scale

    def build(self, size: int, heads: int) -> None:
        if size % 2:
            raise UserError(
                f"LearnedPositions divides vectors between rows and columns, but they have length {size}: choose an "
                "even size"
            )
        self.row = nn.Parameter(torch.randn(self.grid[0], size // 2) * self.scale)
        self.col = nn.Parameter(torch.randn(self.grid[1], size // 2) * self.scale)

    def vectors(self, grid: Grid, like: Tensor) -> Tensor:
        for name, count, limit in zip(("rows", "cols"), grid, self.grid, strict=True):
            if count > limit:
                raise UserError(
                    f"LearnedPositions has {limit} {name}, but the grid has {count}: raise {name}"
                )
        rows, cols = rows_and_cols(grid, like.device)
        return torch.cat((self.row[rows], self.col[cols]), -1)


class ClippedOffsets(Positions):
    """Base class of relative positions, with learned entries for each offset of key region j from query region i.

    Offsets in rows and columns are clipped to ±k (Shaw et al. 2018, section 3.2), so that a table does not depend on
    the size of the grid. All layers share the table.

    Args:
        distance: k, in regions; larger offsets are clipped to it.

    Raises:
        UserError: `distance` is below 1.
    """

    def __init__(self, distance: int = 7) -> None:
        super().__init__()
        at_least_one(self, distance=distance)
        self.distance = distance

    def table(self, *shape: int) -> nn.Parameter:
        """A learned tensor (*shape, 2k + 1, 2k + 1), indexed by the offsets in rows and columns plus k."""
        offsets = 2 * self.distance + 1
        return nn.Parameter(torch.randn(*shape, offsets, offsets) * SMALL)

    def of_pairs(self, table: Tensor, grid: Grid) -> Tensor:
        """(*shape, L, L): the entry of the offset from region i to region j."""
        rows, cols = (
            (index[None] - index[:, None]).clamp(-self.distance, self.distance) + self.distance
            for index in rows_and_cols(grid, table.device)
        )
        return table[..., rows, cols]


class RelativeBias(ClippedOffsets):
    """score_ij = q_i·k_j / √d + b_m[clip(row of j − row of i), clip(column of j − column of i)], clip to ±k.

    A learned bias for each head and offset in two dimensions (Liu et al. 2021, "Swin Transformer", eq. 4).
    """

    def build(self, size: int, heads: int) -> None:
        self.biases = self.table(heads)

    def relative(self, grid: Grid) -> Relative:
        return Relative(biases=self.of_pairs(self.biases, grid))


class RelativeVectors(ClippedOffsets):
    """score_ij = q_i·(k_j + a^K_ij) / √d, z_i = Σ_j α_ij (v_j + a^V_ij), a_ij = w[clip(row of j − row of i),
    clip(column of j − column of i)], clip to ±k.

    Shaw et al. 2018, "Self-Attention with Relative Position Representations", eqs. 3 and 4: two learned vectors w^K and
    w^V of length d = S/M for each offset, here in two dimensions. The heads share them (section 3.3).
    """

    def build(self, size: int, heads: int) -> None:
        self.keys = self.table(size // heads)
        self.values = self.table(size // heads)

    def relative(self, grid: Grid) -> Relative:
        keys, values = (self.of_pairs(table, grid).movedim(0, -1) for table in (self.keys, self.values))
        return Relative(keys=keys, values=values)


def rows_and_cols(grid: Grid, device: torch.device) -> tuple[Tensor, Tensor]:
    """Row and column of each region, (L,) int64 each."""
    regions = torch.arange(grid[0] * grid[1], device=device)
    return regions // grid[1], regions % grid[1]
