"""Entropy and change of attention weights, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from caption.attention.map_entropy import change, entropy
from caption.core.regions import WeightProperties

LN2, LN3 = math.log(2), math.log(3)
PLAIN = WeightProperties()
SIGNED = WeightProperties(sums_to_one=False, signed=True)
UNNORMALISED = WeightProperties(sums_to_one=False)
SENTINEL = WeightProperties(sentinel=True)


@pytest.mark.parametrize(
    ("weights", "properties", "nats"),
    [
        ([0.5, 0.25, 0.25], PLAIN, 1.5 * LN2),
        ([1.0, 0.0, 0.0], PLAIN, 0.0),
        ([1 / 3] * 3, PLAIN, LN3),
        # A sentinel with a share of one half is one more outcome: shares of 1/4, 1/4 and 1/2.
        ([0.25, 0.25], SENTINEL, 1.5 * LN2),
        ([0.0, 0.0], SENTINEL, 0.0),  # all attention on the sentinel
        ([1.0, 0.0], SENTINEL, 0.0),  # nothing
        ([0.5, 0.5 + 1e-6], SENTINEL, LN2),  # rounding does not make its share negative
        # Sigmoid gates: shares of 1/2, 1/4 and 1/4.
        ([0.8, 0.4, 0.4], UNNORMALISED, 1.5 * LN2),
        ([0.01, 0.01], UNNORMALISED, LN2),
        ([0.0, 0.0], UNNORMALISED, 0.0),  # no attention
        # The magnitude of signed weights: shares of 1/2, 1/4 and 1/4.
        ([2.0, -1.0, 1.0], SIGNED, 1.5 * LN2),
        ([0.5, -0.5], SIGNED, LN2),  # with sum 0
        ([1.5, -0.5], WeightProperties(signed=True), -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))),
    ],
)
def test_entropy_by_hand(weights: list[float], properties: WeightProperties, nats: float):
    """Its gradient is finite, and its precision at least single."""
    both = torch.tensor([weights, weights], requires_grad=True)
    found = entropy(both, properties)
    torch.testing.assert_close(found, torch.tensor([nats, nats]), atol=1e-5, rtol=1e-5)
    found.sum().backward()
    assert both.grad.isfinite().all()
    assert entropy(both.bfloat16(), properties).dtype == torch.float32
    assert entropy(both.double(), properties).dtype == torch.float64


def test_change_by_hand():
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]])
    before = torch.tensor([[0.0, 1.0, 0.0], [0.5, 0.5, 0.0]])
    torch.testing.assert_close(change(weights, before), torch.tensor([1.0, 0.25]))
