"""The terms on the attention weights, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hand_unrolled import unrolled

from caption.objectives import doubly_stochastic, entropy


def penalties(weights: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    return doubly_stochastic(unrolled(torch.zeros(*weights.shape[:3], 2), lengths, weights))


def test_doubly_stochastic_by_hand():
    weights = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75], [1.0, 0.0]]]])
    # Σ_t α = (1.5, 0.5) -> 0.25 + 0.25;   (1.25, 0.75) -> 0.0625 + 0.0625
    torch.testing.assert_close(penalties(weights, torch.tensor([[2, 2]])), torch.tensor([[0.5, 0.125]]))


def test_padded_steps_are_no_looks():
    weights = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75], [1.0, 0.0]]]])
    # One step each: (1, 0) -> 0 + 1;   (0.25, 0.75) -> 0.5625 + 0.0625
    torch.testing.assert_close(penalties(weights, torch.tensor([[1, 1]])), torch.tensor([[1.0, 0.625]]))


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_a_short_caption_cannot_reach_zero(steps: int):
    regions = 7
    lengths = torch.tensor([[steps]])
    spread = torch.full((1, 1, steps, regions), 1 / regions)
    floor = regions * (1 - steps / regions) ** 2
    assert penalties(spread, lengths).item() == pytest.approx(floor, abs=1e-5)
    other = torch.randn(1, 1, steps, regions).softmax(-1)
    assert penalties(other, lengths).item() >= floor - 1e-5


def test_entropy_by_hand():
    weights = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [1 / 3] * 3])
    torch.testing.assert_close(entropy(weights), torch.tensor([1.5 * math.log(2), 0.0, math.log(3)]))


def test_entropy_of_weight_zero_has_a_finite_gradient():
    weights = torch.tensor([1.0, 0.0, 1e-45], requires_grad=True)
    entropy(weights).backward()
    assert weights.grad.isfinite().all()


def test_the_gradient_of_entropy_on_the_scores():
    scores = torch.tensor([0.3, -1.0, 2.0, 0.0], requires_grad=True)
    weights = scores.softmax(-1)
    information = entropy(weights)
    information.backward()
    expected = -weights * (weights.log() + information)  # ∂H/∂e = −α (log α + H)
    torch.testing.assert_close(scores.grad, expected.detach())


def test_entropy_in_half_precision_is_computed_in_single():
    weights = torch.full((1000,), 1e-3, dtype=torch.bfloat16)
    assert entropy(weights).dtype == torch.float32
