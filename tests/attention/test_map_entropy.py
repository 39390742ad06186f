"""Entropy and change of attention weights, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from caption.attention.map_entropy import change, entropy
from caption.regions import WeightProperties

LN2, LN3 = math.log(2), math.log(3)
SIGNED = WeightProperties(sums_to_one=False, signed=True)
UNNORMALISED = WeightProperties(sums_to_one=False)
SENTINEL = WeightProperties(sentinel=True)


def test_entropy_by_hand():
    weights = torch.tensor([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0], [1 / 3] * 3])
    torch.testing.assert_close(entropy(weights), torch.tensor([1.5 * math.log(2), 0.0, math.log(3)]))


@pytest.mark.parametrize(
    ("weights", "properties", "nats"),
    [
        # A sentinel with a share of one half is one more outcome: shares of 1/4, 1/4 and 1/2.
        ([0.25, 0.25], SENTINEL, 1.5 * LN2),
        ([0.0, 0.0], SENTINEL, 0.0),  # all attention on the sentinel
        ([1.0, 0.0], SENTINEL, 0.0),  # nothing
        ([1 / 3, 1 / 3], SENTINEL, LN3),
        # Sigmoid gates: shares of 1/2, 1/4 and 1/4.
        ([0.8, 0.4, 0.4], UNNORMALISED, 1.5 * LN2),
        ([0.01, 0.01], UNNORMALISED, LN2),
        ([0.0, 0.7], UNNORMALISED, 0.0),
        ([0.0, 0.0], UNNORMALISED, 0.0),  # no attention
        # The magnitude of signed weights: shares of 1/2, 1/4 and 1/4.
        ([2.0, -1.0, 1.0], SIGNED, 1.5 * LN2),
        ([0.5, -0.5], SIGNED, LN2),  # with sum 0
        ([1.5, -0.5], WeightProperties(signed=True), -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))),
    ],
)
def test_entropy_of_weights_with_other_properties(
    weights: list[float], properties: WeightProperties, nats: float
):
    found = entropy(torch.tensor([weights, weights]), properties)
    torch.testing.assert_close(found, torch.tensor([nats, nats]), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("properties", [WeightProperties(), SENTINEL, UNNORMALISED, SIGNED])
def test_entropy_has_finite_gradients_for_all_properties(properties: WeightProperties):
    weights = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]], requires_grad=True)
    entropy(weights, properties).sum().backward()
    assert weights.grad.isfinite().all()


@pytest.mark.parametrize(
    ("given", "computed"), [(torch.bfloat16, torch.float32), (torch.float64, torch.float64)]
)
def test_the_precision_is_at_least_single(given: torch.dtype, computed: torch.dtype):
    assert entropy(torch.full((4,), 0.25, dtype=given)).dtype == computed


def test_rounding_does_not_make_the_share_of_a_sentinel_negative():
    weights = torch.tensor([0.5, 0.5 + 1e-6])
    assert entropy(weights, SENTINEL).item() == pytest.approx(LN2, abs=1e-5)


def test_change_by_hand():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]])
    before = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    torch.testing.assert_close(change(weights, before), torch.tensor([1.0, 0.25]))
