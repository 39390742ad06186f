"""The doubly stochastic term, worked out by hand, and its requirements on weights."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.hand_unrolled import loss_of, unrolled

from caption.errors import UserError
from caption.objectives import CrossEntropy, Reinforce, doubly_stochastic
from caption.result import WeightProperties


def penalties(
    weights: torch.Tensor, lengths: torch.Tensor, properties: WeightProperties | None = None
) -> torch.Tensor:
    packed = unrolled(torch.zeros(*weights.shape[:3], 2), lengths, weights)
    return doubly_stochastic(packed, properties or WeightProperties())


def test_doubly_stochastic_by_hand():
    weights = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75], [1.0, 0.0]]]])
    # Σ_t α = (1.5, 0.5) -> 0.25 + 0.25;   (1.25, 0.75) -> 0.0625 + 0.0625
    torch.testing.assert_close(penalties(weights, torch.tensor([[2, 2]])), torch.tensor([[0.5, 0.125]]))


def test_padded_steps_do_not_count():
    weights = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75], [1.0, 0.0]]]])
    # One step each: (1, 0) -> 0 + 1;   (0.25, 0.75) -> 0.5625 + 0.0625
    torch.testing.assert_close(penalties(weights, torch.tensor([[1, 1]])), torch.tensor([[1.0, 0.625]]))


def test_an_absent_caption_has_none():
    weights = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75], [1.0, 0.0]]]])
    assert penalties(weights, torch.tensor([[2, 0]])).tolist() == [[0.5, 0.0]]


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_a_short_caption_cannot_reach_zero(steps: int):
    regions = 7
    lengths = torch.tensor([[steps]])
    spread = torch.full((1, 1, steps, regions), 1 / regions)
    floor = regions * (1 - steps / regions) ** 2
    assert penalties(spread, lengths).item() == pytest.approx(floor, abs=1e-5)
    other = torch.randn(1, 1, steps, regions).softmax(-1)
    assert penalties(other, lengths).item() >= floor - 1e-5


def test_weights_that_need_not_sum_to_one_are_summed_all_the_same():
    weights = torch.tensor([[[[0.5, 0.0], [0.25, 0.5]]]])
    # Σ_t α = (0.75, 0.5) -> 0.0625 + 0.25
    for properties in (WeightProperties(sums_to_one=False), WeightProperties(sentinel=True)):
        torch.testing.assert_close(
            penalties(weights, torch.tensor([[2]]), properties), torch.tensor([[0.3125]])
        )


def test_signed_weights_are_refused():
    weights = torch.tensor([[[[1.5, -0.5]]]])
    with pytest.raises(
        UserError, match=r"needs weights of at least 0.* set the objective's doubly_stochastic to 0"
    ):
        penalties(weights, torch.tensor([[1]]), WeightProperties(signed=True))


@pytest.mark.parametrize("objective", [CrossEntropy, Reinforce])
def test_objectives_use_the_declared_properties(objective: type[CrossEntropy | Reinforce]):
    weights = torch.tensor([[[[1.5, -0.5]]]])
    locations = (torch.zeros(1, 1, 1, dtype=torch.long), torch.zeros(1, 1, 1))
    sampled = locations if objective is Reinforce else ()
    packed = unrolled(torch.zeros(1, 1, 1, 2), torch.tensor([[1]]), weights, *sampled)
    targets = torch.zeros(1, 1, 1, dtype=torch.long)
    signed = WeightProperties(sums_to_one=False, signed=True)
    with pytest.raises(UserError, match="negative"):
        loss_of(objective(doubly_stochastic=1.0), packed, targets, signed)
    name = "entropy" if objective is CrossEntropy else "entropy_weight"
    costs = [
        loss_of(objective(doubly_stochastic=0.0, **{name: cost}), packed, targets, signed).value
        for cost in (0.0, 1.0)
    ]
    # Shares of 3/4 and 1/4; CrossEntropy penalises entropy, Reinforce rewards it.
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    difference = (costs[1] - costs[0]).item()
    assert abs(difference) == pytest.approx(expected, rel=1e-5)
    assert (difference > 0) == (objective is CrossEntropy)
