"""The small CNN with several grids."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from caption.encoders import Encoder, SmallCNN
from caption.errors import UserError
from caption.parts import make


def pixels(side: int = 32) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8, generator=generator)


def test_each_view_is_the_one_before_at_half_the_resolution():
    torch.manual_seed(0)
    encoder = SmallCNN((4, 4, 6), views=3).eval()
    assert encoder.region_sizes == (6, 6, 6)
    views = encoder(pixels())
    assert [view.grid for view in views] == [(8, 8), (4, 4), (2, 2)]
    for fine, coarse in pairwise(views):
        cells = fine.vectors.unflatten(1, fine.grid)
        for row in range(coarse.grid[0]):
            for col in range(coarse.grid[1]):
                block = cells[:, 2 * row : 2 * row + 2, 2 * col : 2 * col + 2].flatten(1, 2)
                expected = block.mean(1)
                torch.testing.assert_close(coarse.vectors[:, row * coarse.grid[1] + col], expected)


def test_an_odd_side_keeps_its_last_cell():
    views = SmallCNN((4, 4, 6), views=2).eval()(pixels(20))
    assert [view.grid for view in views] == [(5, 5), (3, 3)]


def test_more_views_add_no_weights():
    torch.manual_seed(0)
    one = SmallCNN((4, 4, 6)).eval()
    two = SmallCNN((4, 4, 6), views=2).eval()
    two.load_state_dict(one.state_dict())
    torch.testing.assert_close(two(pixels())[0].vectors, one(pixels())[0].vectors)
    assert len(one(pixels())) == 1


def test_it_comes_back_from_its_description():
    assert make(SmallCNN((4, 6), views=2).spec, Encoder).region_sizes == (6, 6)
    described = {"class_path": "caption.encoders.SmallCNN", "init_args": {"widths": [4, 6]}}
    assert make(described, Encoder).region_sizes == (6,)  # of a checkpoint without `views`


def test_no_view_is_refused():
    with pytest.raises(UserError, match="views 0 of SmallCNN must be at least 1"):
        SmallCNN(views=0)
