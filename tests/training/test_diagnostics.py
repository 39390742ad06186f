"""Diagnostics of the maps, worked out by hand, and the warning when they stop moving."""

from __future__ import annotations

import math

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from caption.core.regions import WeightProperties
from caption.training.diagnostics import StillMaps, diagnose

# Two captions of one image, of 3 steps and of 1; the second has padding, and the third is absent.
MAPS = torch.tensor([[[[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]], [[0.25, 0.75], [0, 0], [0, 0]], [[0, 0]] * 3]])
REAL = torch.tensor([[[True] * 3, [True, False, False], [False] * 3]])


def test_by_hand():
    numbers = diagnose(MAPS.requires_grad_(), REAL, WeightProperties())
    ln2 = math.log(2)
    last = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert numbers["attention_entropy"].item() == pytest.approx((0 + ln2 + ln2 + last) / 4, rel=1e-5)
    assert numbers["attention_change"].item() == pytest.approx((0.5 + 0.0) / 2)  # the only two pairs
    assert numbers["coverage_min"].item() == pytest.approx((1.0 + 0.25) / 2)
    assert numbers["coverage_max"].item() == pytest.approx((2.0 + 0.75) / 2)
    assert not any(value.requires_grad for value in numbers.values())
    # A caption of one word has no pairs, and the sentinel takes the other half, which counts.
    one, properties = torch.tensor([[[[0.25, 0.25], [0, 0]]]]), WeightProperties(sentinel=True)
    numbers = diagnose(one, torch.tensor([[[True, False]]]), properties)
    assert numbers["attention_change"].item() == 0
    assert numbers["attention_entropy"].item() == pytest.approx(1.5 * ln2, rel=1e-5)


def test_nothing_waits_for_the_gpu():
    with FakeTensorMode(allow_non_fake_inputs=True):
        numbers = diagnose(MAPS, REAL, WeightProperties())
    assert all(value.shape == () for value in numbers.values())


def warnings(watch: StillMaps, changes: list[float]) -> list[str]:
    return [w for change in changes if (w := watch.watch(torch.tensor(change))) is not None]


def test_still_maps_are_noticed_once_and_not_those_that_move_now_and_then():
    watch = StillMaps(threshold=0.01, window=5, patience=3)
    assert warnings(watch, ([0.002] * 14 + [0.2]) * 5) == []
    assert warnings(watch, [0.002] * 14) == []
    (warning,) = warnings(watch, [0.002])
    assert "0.20%" in warning
    assert "warm_start" in warning
    assert warnings(watch, [0.002] * 50) == []
