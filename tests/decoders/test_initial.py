"""The first state: MLPs on the mean region vector, or a constant."""

from __future__ import annotations

import pytest
import torch
from helpers.tiny_views import one_row
from torch import Tensor

from caption.decoders import ConstantState, Initial, InitialState
from caption.errors import UserError


def first_state(initial: Initial, vectors: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """h[0] and c[0] of regions (B, L, D)."""
    return initial(*one_row(vectors, mask))


def test_shared_layers_drop_the_same_units_for_both():
    torch.manual_seed(0)
    initial = InitialState(layers=2, activation="linear", shared=True).train()
    initial.build(region_size=40, hidden_size=2)
    with torch.no_grad():
        initial.cell[0].weight.copy_(initial.hidden[0].weight)
        initial.cell[0].bias.copy_(initial.hidden[0].bias)
    hidden, cell = first_state(initial, torch.randn(1, 3, 40))
    torch.testing.assert_close(hidden, cell)


def test_no_layers_are_refused():
    with pytest.raises(UserError, match="layers 0 of InitialState must be at least 1"):
        InitialState(layers=0)


def test_a_constant_state_ignores_the_image_and_is_learned():
    initial = ConstantState()
    initial.build(region_size=3, hidden_size=2)
    hidden, cell = first_state(initial, torch.randn(4, 5, 3), torch.ones(4, 5, dtype=torch.bool))
    assert hidden.shape == cell.shape == (4, 1, 2)
    (hidden[:, 0, 0].sum() + 2 * cell[:, 0, 1].sum()).backward()
    assert initial.hidden.grad.tolist() == [4, 0]
    assert initial.cell.grad.tolist() == [0, 8]
