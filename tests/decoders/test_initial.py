"""The first state: MLPs on the mean region vector, or a constant."""

from __future__ import annotations

import pytest
import torch
from helpers.tiny_views import one_row
from torch import Tensor

from caption.decoders import ConstantState, Initial, InitialState


def made(**options: object) -> InitialState:
    initial = InitialState(**options)
    initial.build(region_size=3, hidden_size=2)
    return initial


def first_state(initial: Initial, vectors: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """h[0] and c[0] of regions (B, L, D)."""
    return initial(*one_row(vectors, mask))


def test_by_hand():
    initial = made()
    with torch.no_grad():
        for mlp, row in ((initial.hidden, 0), (initial.cell, 2)):
            mlp[0].weight.zero_()
            mlp[0].weight[0, row] = 1
            mlp[0].bias.copy_(torch.tensor([0.0, 1.0]))
    regions = torch.tensor([[[1.0, 5.0, 0.0], [3.0, 5.0, -4.0]]])  # mean (2, 5, -2)
    hidden, cell = first_state(initial, regions)
    torch.testing.assert_close(hidden, torch.tensor([[[2.0, 1.0]]]).tanh())
    torch.testing.assert_close(cell, torch.tensor([[[-2.0, 1.0]]]).tanh())


def test_masked_regions_do_not_enter_the_mean():
    initial = made()
    regions = torch.randn(2, 5, 3)
    mask = torch.tensor([[True, False, True, True, False], [True] * 5])
    masked = first_state(initial, regions, mask)
    without = first_state(initial, regions[:1, mask[0]])
    for given, expected, full in zip(masked, without, first_state(initial, regions), strict=True):
        torch.testing.assert_close(given[:1], expected)
        torch.testing.assert_close(given[1:], full[1:])


def test_linear_is_not_bounded_by_one():
    hidden, _ = first_state(made(activation="linear"), torch.full((1, 4, 3), 100.0))
    assert hidden.abs().max() > 1


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_layers_are_counted(layers: int):
    initial = made(layers=layers)
    assert sum(isinstance(module, torch.nn.Linear) for module in initial.hidden) == layers
    assert sum(isinstance(module, torch.nn.ReLU) for module in initial.hidden) == layers - 1
    assert sum(isinstance(module, torch.nn.Dropout) for module in initial.hidden) == layers - 1


def test_shared_layers_by_hand():
    """mean (2, -4, 1) -> ReLU of it, plus 1 in the first element -> one row for h, another for c."""
    initial = made(layers=2, shared=True, activation="linear", dropout=0.0)
    with torch.no_grad():
        initial.trunk[0].weight.copy_(torch.eye(3))
        initial.trunk[0].bias.copy_(torch.tensor([1.0, 0.0, 0.0]))
        for last, weight in (
            (initial.hidden[0], [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]),
            (initial.cell[0], [[0.0, 0.0, 5.0]] * 2),
        ):
            last.weight.copy_(torch.tensor(weight))
            last.bias.copy_(torch.tensor([0.0, 0.5]))
    hidden, cell = first_state(initial, torch.tensor([[[2.0, -4.0, 1.0]]]))
    assert hidden.tolist() == [[[3.0, 1.5]]]
    assert cell.tolist() == [[[5.0, 5.5]]]


def linears(modules: torch.nn.Module) -> int:
    return sum(isinstance(module, torch.nn.Linear) for module in modules)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_only_the_last_layer_is_not_shared(layers: int):
    initial = made(layers=layers, shared=True)
    assert linears(initial.trunk) == layers - 1
    assert linears(initial.hidden) == linears(initial.cell) == 1
    assert sum(isinstance(module, torch.nn.Dropout) for module in initial.modules()) == layers - 1


def test_shared_layers_drop_the_same_units_for_both():
    torch.manual_seed(0)
    initial = InitialState(layers=2, activation="linear", shared=True).train()
    initial.build(region_size=40, hidden_size=2)
    with torch.no_grad():
        initial.cell[0].weight.copy_(initial.hidden[0].weight)
        initial.cell[0].bias.copy_(initial.hidden[0].bias)
    hidden, cell = first_state(initial, torch.randn(1, 3, 40))
    torch.testing.assert_close(hidden, cell)


def test_layers_that_are_not_shared_keep_the_names_that_checkpoints_have():
    assert sorted(made(layers=2).state_dict()) == [
        f"{state}.{layer}.{kind}"
        for state in ("cell", "hidden")
        for layer in (0, 3)
        for kind in ("bias", "weight")
    ]


def test_no_layers_are_refused():
    with pytest.raises(ValueError, match="at least one layer, not 0"):
        InitialState(layers=0)


def test_a_constant_state_ignores_the_image_and_is_learned():
    initial = ConstantState()
    initial.build(region_size=3, hidden_size=2)
    hidden, cell = first_state(initial, torch.randn(4, 5, 3), torch.ones(4, 5, dtype=torch.bool))
    assert hidden.shape == cell.shape == (4, 1, 2)
    (hidden[:, 0, 0].sum() + 2 * cell[:, 0, 1].sum()).backward()
    assert initial.hidden.grad.tolist() == [4, 0]
    assert initial.cell.grad.tolist() == [0, 8]
