"""The small CNN: the positions of its regions, their encoding in the vectors, and several grids."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

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
