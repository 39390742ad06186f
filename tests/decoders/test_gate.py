"""The gate β = σ(f_β(h))."""

from __future__ import annotations

import torch

from caption.decoders import Gate


def test_by_hand():
    gate = Gate()
    gate.build(hidden_size=2, context_size=5)
    with torch.no_grad():
        gate.project.weight.copy_(torch.tensor([[1.0, -1.0]]))
        gate.project.bias.fill_(0.5)
    beta = gate(torch.tensor([[[2.0, 1.0], [0.0, 0.5]]]))
    torch.testing.assert_close(beta, torch.tensor([[[1.5], [0.0]]]).sigmoid())


def test_a_vector_gate_has_one_value_for_each_feature():
    gate = Gate("vector")
    gate.build(hidden_size=2, context_size=5)
    assert gate(torch.randn(3, 4, 2)).shape == (3, 4, 5)
