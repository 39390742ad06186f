"""Refined regions."""

from __future__ import annotations

import torch
from torch.nn import functional

from caption.encoders import LinearRefiner


def made(dropout: float = 0.0) -> LinearRefiner:
    torch.manual_seed(0)
    refiner = LinearRefiner(size=4, dropout=dropout)
    refiner.build(region_size=6)
    return refiner


def test_it_is_dropout_relu_affine_layer_norm():
    refiner, regions = made(), torch.randn(2, 5, 6)
    affine = refiner.layers[1]
    expected = (functional.layer_norm(regions, (6,)) @ affine.weight.T + affine.bias).relu()
    torch.testing.assert_close(refiner(regions), expected)
    assert refiner.region_size == 4


def test_each_region_is_refined_on_its_own():
    refiner, regions = made(), torch.randn(2, 5, 6)
    torch.testing.assert_close(refiner(regions)[:, 3], refiner(regions[:, 3:4])[:, 0])


def test_regions_stored_in_half_precision_are_taken():
    refiner, regions = made(), torch.randn(2, 5, 6).half()
    torch.testing.assert_close(refiner(regions), refiner(regions.float()))


def test_dropout_acts_in_training_alone():
    refiner, regions = made(dropout=1.0), torch.randn(2, 5, 6)
    assert (refiner.train()(regions) == 0).all()
    assert (refiner.eval()(regions) != 0).any()
