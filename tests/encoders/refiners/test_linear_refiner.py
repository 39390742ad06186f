"""The refiner with a linear layer for each region."""

from __future__ import annotations

import torch
from torch.nn import functional

from caption.encoders import LinearRefiner
from caption.regions import Regions


def small_refiner(dropout: float = 0.0) -> LinearRefiner:
    torch.manual_seed(0)
    refiner = LinearRefiner(size=4, dropout=dropout)
    refiner.build((6,))
    return refiner


def refined(refiner: LinearRefiner, vectors: torch.Tensor) -> torch.Tensor:
    (view,) = refiner((Regions(vectors, (1, vectors.shape[1])),))
    return view.vectors


def test_it_is_dropout_relu_affine_layer_norm():
    refiner, vectors = small_refiner(), torch.randn(2, 5, 6)
    affine = refiner.layers[1]
    expected = (functional.layer_norm(vectors, (6,)) @ affine.weight.T + affine.bias).relu()
    torch.testing.assert_close(refined(refiner, vectors), expected)
    assert refiner.region_sizes == (4,)


def test_dropout_acts_in_training_alone():
    refiner, vectors = small_refiner(dropout=1.0), torch.randn(2, 5, 6)
    assert (refined(refiner.train(), vectors) == 0).all()
    assert (refined(refiner.eval(), vectors) != 0).any()
