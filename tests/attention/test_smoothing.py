"""Scores averaged over neighbouring cells, against loops."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.given_scores import GivenScores
from torch import Tensor

from caption.attention import Query, QuerySizes, ScoredAttention, Softmax
from caption.attention.smoothing import smoothed
from caption.errors import UserError
from caption.regions import Regions

GRID = (3, 4)
MASK = torch.tensor(
    [[True] * 12, [True, False, True, True, True, True, False, True, True, True, True, False]]
)


def transcribed(energies: Tensor, width: float, mask: Tensor) -> Tensor:
    """The formula for one image and query, cell by cell; (L,)."""
    cols = GRID[1]
    actual = torch.zeros(12, dtype=energies.dtype)
    for i in range(12):
        above = below = 0.0
        for j in range(12):
            if mask[j]:
                distance = (i // cols - j // cols) ** 2 + (i % cols - j % cols) ** 2
                nearness = math.exp(-distance / (2 * width**2))
                above, below = above + nearness * float(energies[j]), below + nearness
        actual[i] = above / below
    return actual


def test_half_precision_is_averaged_in_single_precision():
    energies = torch.randn(1, 2, 12).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        actual = smoothed(energies, GRID, 1.0)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, smoothed(energies.float(), GRID, 1.0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("width", [0.4, 0.8, 2.5])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_aligns_smoothed_scores(masked: bool, width: float):
    attention = ScoredAttention(GivenScores(), Softmax(), smoothing=width)
    attention.build((5,), QuerySizes(hidden=12))
    mask = MASK if masked else None
    memory = attention.project((Regions(torch.randn(2, 12, 5).double(), GRID, mask),))
    energies = torch.randn(2, 3, 12, dtype=torch.float64, requires_grad=True)
    output = attention(Query(energies), memory)
    for image in range(2):
        real = MASK[image] if masked else torch.ones(12, dtype=torch.bool)
        for query in range(3):
            wanted = transcribed(energies[image, query].detach(), width, real)
            wanted = wanted.masked_fill(~real, -torch.inf).softmax(-1)
            torch.testing.assert_close(output.weights[image, query], wanted)
    output.context.sum().backward()
    assert energies.grad.isfinite().all()
    assert (energies.grad != 0).any()


@pytest.mark.parametrize("width", [-1.0, float("nan")])
def test_a_width_is_not_negative(width: float):
    with pytest.raises(UserError, match="must be a width of 0 cells or more"):
        ScoredAttention(GivenScores(), Softmax(), smoothing=width)
