"""The small CNN: the positions of its regions, their encoding in the vectors, and several grids."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from torch import Tensor

from caption.core.box import Box
from caption.core.errors import UserError
from caption.encoders import SmallCNN


def pixels(height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8, generator=generator)


@pytest.mark.parametrize("stride", [1, 2, 4, 8])
def test_a_finer_grid_has_the_regions_of_the_coarse_one(stride: int):
    torch.manual_seed(0)
    coarse = SmallCNN((4, 6, 5, 7))
    images = pixels(48, 64)
    coarse(images)  # BatchNorm has statistics
    fine = SmallCNN((4, 6, 5, 7), stride=stride)
    fine.load_state_dict(coarse.state_dict())
    (few,), (many,) = coarse.eval()(images), fine.eval()(images)
    assert many.grid == (48 // stride, 64 // stride)
    every = 8 // stride
    among = many.vectors.unflatten(1, many.grid)[:, ::every, ::every].flatten(1, 2)
    assert torch.allclose(few.vectors, among, atol=1e-5)
    # Both grids cover the picture, from edge to edge but for half a cell.
    for side, end in zip(fine.boxes(48, 64)[0], (0, 0, 64, 48), strict=True):
        assert abs(side - end) <= 8


def test_each_view_is_the_one_before_at_half_the_resolution():
    torch.manual_seed(0)
    encoder = SmallCNN((4, 4, 6), views=3).eval()
    assert encoder.region_sizes == (6, 6, 6)
    assert encoder.normalise(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1.0, 1.0]
    views = encoder(pixels(32, 32))
    assert [view.grid for view in views] == [(8, 8), (4, 4), (2, 2)]
    for fine, coarse in pairwise(views):
        cells = fine.vectors.unflatten(1, fine.grid)
        blocks = cells.unflatten(2, (-1, 2)).unflatten(1, (-1, 2))  # (images, rows, 2, columns, 2, D)
        torch.testing.assert_close(coarse.vectors.unflatten(1, coarse.grid), blocks.mean((2, 4)))


def test_an_odd_side_keeps_its_last_cell():
    views = SmallCNN((4, 4, 6), views=2).eval()(pixels(20, 20))
    assert [view.grid for view in views] == [(5, 5), (3, 3)]


@pytest.mark.parametrize(
    ("kernels", "field", "off"),
    [
        (None, 38, 0),
        ((4, 2, 4, 3), 34, 0),
        ((3, 2, 2, 1), 9, -0.5),
        ((3, 2, 4, 1), 17, -0.5),
        ((3, 2, 4, 3), 33, -0.5),
    ],
)
def test_kernels_set_the_receptive_field(kernels: tuple[int, ...] | None, field: int, off: float):
    encoder = SmallCNN((4, 4, 4, 4), kernels=kernels)
    rows, cols = seen_by(encoder, 64, (4, 4))
    assert rows == cols == (36 + off - field / 2, 36 + off + field / 2)
    assert encoder.boxes(64, 64) == (Box(off, off, 64 + off, 64 + off),)


def test_dilated_layers_let_every_region_see_the_whole_image():
    encoder = SmallCNN((4,) * 6, kernels=(3, 2, 4, 3, 3, 3), stride=8)
    for row, col in product((0, 7), (0, 7)):
        assert seen_by(encoder, 64, (row, col)) == ((0, 64), (0, 64))
    assert encoder.boxes(64, 64) == (Box(-0.5, -0.5, 63.5, 63.5),)
    with pytest.raises(UserError, match="must be 4 numbers, one for each of its widths"):
        SmallCNN(kernels=(3, 3))


def seen_by(encoder: SmallCNN, side: int, cell: tuple[int, int]) -> tuple[tuple[int, int], tuple[int, int]]:
    """The rows and the columns of pixels, from and to, on which a region depends, by its gradient."""
    for name, weight in encoder.eval().named_parameters():
        weight.data.fill_(1.0 if name.endswith("weight") else 0.0)  # no ReLU is off
    images = torch.ones(1, 3, side, side, requires_grad=True)
    maps = encoder.features(images)
    assert isinstance(maps, Tensor)
    (gradient,) = torch.autograd.grad(maps[0, 0, *cell], images)
    assert gradient[0, 0].any(0).outer(gradient[0, 0].any(1)).sum() == gradient[0, 0].count_nonzero()
    rows, cols = (gradient[0, 0].any(axis).nonzero().flatten().tolist() for axis in (1, 0))
    return (rows[0], rows[-1] + 1), (cols[0], cols[-1] + 1)
