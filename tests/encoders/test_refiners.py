"""Refined regions."""

from __future__ import annotations

import pytest
import torch
from tiny_views import one_row
from torch import Tensor
from torch.nn import functional

from caption.encoders import LinearRefiner
from caption.regions import Regions


def made(dropout: float = 0.0) -> LinearRefiner:
    torch.manual_seed(0)
    refiner = LinearRefiner(size=4, dropout=dropout)
    refiner.build((6,))
    return refiner


def refined(refiner: LinearRefiner, vectors: Tensor) -> Tensor:
    """(B, L, D) -> (B, L, D')."""
    (view,) = refiner(one_row(vectors))
    return view.vectors


def test_it_is_dropout_relu_affine_layer_norm():
    refiner, regions = made(), torch.randn(2, 5, 6)
    affine = refiner.layers[1]
    expected = (functional.layer_norm(regions, (6,)) @ affine.weight.T + affine.bias).relu()
    torch.testing.assert_close(refined(refiner, regions), expected)
    assert refiner.region_sizes == (4,)


def test_each_region_is_refined_on_its_own():
    refiner, regions = made(), torch.randn(2, 5, 6)
    torch.testing.assert_close(refined(refiner, regions)[:, 3], refined(refiner, regions[:, 3:4])[:, 0])


def test_regions_stored_in_half_precision_are_taken():
    refiner, regions = made(), torch.randn(2, 5, 6).half()
    torch.testing.assert_close(refined(refiner, regions), refined(refiner, regions.float()))


def test_dropout_acts_in_training_alone():
    refiner, regions = made(dropout=1.0), torch.randn(2, 5, 6)
    assert (refined(refiner.train(), regions) == 0).all()
    assert (refined(refiner.eval(), regions) != 0).any()


def test_each_view_has_layers_of_its_own():
    torch.manual_seed(0)
    refiner = LinearRefiner(size=4, dropout=0.0)
    refiner.build((6, 3))
    assert refiner.region_sizes == (4, 4)
    mask = torch.tensor([[True, False, True, True]] * 2)
    fine, coarse = Regions(torch.randn(2, 4, 6), (2, 2), mask), Regions(torch.randn(2, 2, 3).half(), (1, 2))
    found = refiner((fine, coarse))
    assert [view.grid for view in found] == refiner.grids([(2, 2), (1, 2)]) == [(2, 2), (1, 2)]
    assert found[0].mask is mask
    assert found[1].mask is None
    for view, layers, given in zip(
        found, (refiner.layers, refiner.layers_of_others[0]), (fine, coarse), strict=True
    ):
        vectors, affine = given.vectors.float(), layers[1]
        expected = functional.layer_norm(vectors, vectors.shape[-1:]) @ affine.weight.T + affine.bias
        torch.testing.assert_close(view.vectors, expected.relu())
    with pytest.raises(ValueError, match="zip"):
        refiner((fine,))


def test_one_view_keeps_the_names_that_checkpoints_have():
    assert sorted(made().state_dict()) == [
        "layers.0.bias",
        "layers.0.weight",
        "layers.1.bias",
        "layers.1.weight",
    ]
