"""Where the image tokens of a photo lie, found by photos that show their own coordinates.

A photo whose brightness grows from left to right, and one from top to bottom, go through the processor of a model: the
values of its pixels say which part of the photo each of them shows, whatever was resized, cut, padded or tiled.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from caption.core.box import Box
from caption.core.errors import UserError
from caption.core.regions import Grid
from caption.models.transformers.transformers_model import MOST_CLASS_TOKENS

TOLERANCE = 0.02
"""Maximal distance of a pixel from its place on a tile, as a share of the photo's sides, beside one of its pixels."""
SNAP = 0.02
"""Edges this close to those of the photo, as a share of its sides, are at them; brightness has 256 levels."""


class Layout(NamedTuple):
    """Where the image tokens of a photo lie."""

    grids: tuple[Grid, ...]
    """(rows, cols) of each view, the finest first."""
    order: Tensor
    """(L,) int64, the model's indices of the tokens of patches, view by view, each in row order."""
    others: Tensor
    """(S,) int64, those without a place in the photo: class tokens, ends of lines."""
    box: Box
    """The part of the photo that the views cover, in shares of its sides."""

    def __str__(self) -> str:
        views = []
        ends = [rows * cols for rows, cols in self.grids]
        for (rows, cols), order in zip(self.grids, self.order.split(ends), strict=True):
            numbers = order.view(rows, cols) - order[0]
            width = int((numbers[0] == torch.arange(cols)).cumprod(0).sum())
            line = int(numbers[1, 0]) if rows > 1 else cols
            height = int((numbers[:, 0] == torch.arange(rows) * line).cumprod(0).sum())
            are_tiles = (height, width) != (rows, cols)
            tiles = f" in {rows // height}x{cols // width} tiles of {height}x{width}" if are_tiles else ""
            views.append(f"{rows}x{cols} image tokens{tiles}")
        if len(views) > 1:
            is_last = self.order[-1] > self.order[0]
            views[1] += f" of a coarser view, {'last' if is_last else 'first'}"
        without = (
            f"{len(self.others)} without a place in the photo" if len(self.others) else "all have a place"
        )
        return f"{' and '.join(views)}; {without}"


def coordinate_photos(width: int, height: int) -> list[Image.Image]:
    """A black photo, a white one, and those whose brightness is x and y."""
    x, y = ((np.arange(side) / max(1, side - 1) * 255).round().astype(np.uint8) for side in (width, height))
    ramps = [np.broadcast_to(levels, (height, width)) for levels in (x, y[:, None])]
    plain = [Image.new("RGB", (width, height), colour) for colour in ("black", "white")]
    return [*plain, *(Image.fromarray(np.ascontiguousarray(ramp)).convert("RGB") for ramp in ramps)]


def tiles(pixels: list[Tensor], width: int, height: int) -> Tensor:
    """(T, 4) centre x, y, width and height of each tile, in shares of the photo's sides; NaN if it shows nothing.

    Args:
        pixels: of `coordinate_photos`: (..., C, H, W), T tiles; or (..., p), T patches, whose width is given as 0.
        width, height: of these photos.

    Raises:
        UserError: a tile is turned, or its pixels are not at even distances.
    """
    black, white, *ramps = (
        (
            part.reshape(-1, *part.shape[-3:]).mean(1)
            if part.ndim > 3
            else part.reshape(-1, part.shape[-1]).mean(1)[:, None, None]
        ).double()
        for part in pixels
    )
    light = white - black
    shown = light.abs() > 0.95 * light.abs().max()  # the others are padding
    of_axes = []
    for ramp, side, axis in zip(ramps, (width, height), (2, 1), strict=True):
        # Levels are those of the centres of the first and of the last pixel.
        share = ((ramp - black) / light * (side - 1) + 0.5) / side
        share, seen = (part.transpose(axis, 2).where(shown.transpose(axis, 2), 0) for part in (share, shown))
        cells, count = torch.arange(share.shape[2]).double() + 0.5, seen.sum((1, 2))
        middle = (seen * cells).sum((1, 2)) / count
        mean = share.sum((1, 2)) / count
        away = seen * (cells - middle[:, None, None])
        slope = (away * share).sum((1, 2)) / (away**2).sum((1, 2)).clamp_min(1e-9)
        line = mean[:, None, None] + slope[:, None, None] * away
        if ((share - line).abs() * seen > TOLERANCE + 1 / side).any() or (slope < 0).any():
            raise UserError(
                "the processor of the model turns or bends photos, so maps would be drawn at wrong places: use one "
                "that only resizes, cuts, pads and tiles them"
            )
        of_axes.append((mean + slope * (share.shape[2] / 2 - middle), slope * share.shape[2]))
    (x, across), (y, down) = of_axes
    return torch.stack((x, y, across, down), 1)


def cells_of(placed: Tensor, shape: tuple[int, ...], count: int) -> Tensor:
    """(N, 4) centre x, y, width and height of each image token of tiles that hold N / T tokens each, in row order.

    Args:
        placed: see `tiles`; consecutive patches may be merged into one token.
        shape: of the pixels.
        count: N.
    """
    if count < len(placed):
        return placed.unflatten(0, (count, -1)).mean(1)
    per = count // len(placed)
    aspect = shape[-2] / shape[-1] if len(shape) > 3 else 1
    for others in range(min(per, MOST_CLASS_TOKENS + 1)):
        rows = round(((per - others) * aspect) ** 0.5)
        if rows and (per - others) % rows == 0 and abs((per - others) / rows / rows * aspect - 1) < 0.1:
            break
    else:
        raise UserError(f"{per} image tokens fill no grid of {shape[-2]}x{shape[-1]} pixels")
    cols = (per - others) // rows
    cell_x, cell_y = ((torch.arange(cells).double() + 0.5) / cells - 0.5 for cells in (cols, rows))
    x, y, across, down = (part[:, None, None] for part in placed.unbind(1))
    xs, ys = x + across * cell_x, y + down * cell_y[:, None]
    grid = torch.stack(torch.broadcast_tensors(xs, ys, across / cols, down / rows), -1).flatten(1, 2)
    missing = torch.full((len(placed), others, 4), torch.nan, dtype=grid.dtype)
    return torch.cat((missing, grid), 1).flatten(0, 1)


def layout_of(cells: Tensor) -> Layout:
    """The layout of tokens at these places, see `cells_of`; NaN = no place.

    Raises:
        UserError: they fill no grid, or more than two.
    """
    has_place = cells.isfinite().all(1)
    left = has_place.nonzero()[:, 0]
    views: list[Tensor] = []
    grids: list[Grid] = []
    box: Box | None = None
    while len(left):
        area = cells[left, 2] * cells[left, 3]
        is_finest = area <= 1.2 * area.min()
        view, left = left[is_finest], left[~is_finest]
        (col, across), (row, down) = (_ranks(cells[view, axis]) for axis in (0, 1))
        cols, rows = int(col.max()) + 1, int(row.max()) + 1
        cell = row * cols + col
        if len(view) != rows * cols or len(cell.unique()) != rows * cols or len(views) == 2:
            raise UserError(
                f"the {len(cells)} image tokens of a photo lie on no grid, or on more than two "
                f"({len(view)} tokens in {rows} rows and {cols} columns): maps cannot be drawn"
            )
        views.append(view[cell.argsort()])
        grids.append((rows, cols))
        if box is None:
            x, y = cells[view, 0], cells[view, 1]
            width = across if cols > 1 else float(cells[view, 2].mean()) or 1.0
            height = down if rows > 1 else float(cells[view, 3].mean()) or 1.0
            edges = (x.min() - width / 2, y.min() - height / 2, x.max() + width / 2, y.max() + height / 2)
            nearest = (0, 0, 1, 1)
            box = Box(*(
                float(end) if abs(edge - end) < SNAP else float(edge)
                for edge, end in zip(edges, nearest, strict=True)
            ))  # fmt: skip
    if box is None:
        raise UserError("no image token of the model has a place in the photo: maps cannot be drawn")
    return Layout(tuple(grids), torch.cat(views), (~has_place).nonzero()[:, 0], box)


def _ranks(places: Tensor) -> tuple[Tensor, float]:
    """The rank of each place among the distinct ones, and the distance between these."""
    ordered, order = places.sort()
    gaps = ordered.diff()
    steps = gaps > max(0.5 * float(gaps.max()) if len(gaps) else 0.0, 0.25 / len(places))
    ranks = torch.zeros_like(order)
    ranks[order[1:]] = steps.cumsum(0)
    return ranks, float((ordered[-1] - ordered[0]) / max(1, int(steps.sum())))
