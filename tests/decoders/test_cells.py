"""Recurrent cells: the GRUs against torch's and a transcription, with attention, and what decoders hold for a cell."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from helpers.tiny_decoder import HIDDEN, decoder, images, sentences, unroll
from helpers.tiny_views import one_row
from torch import Tensor, nn

from caption.decoders import (
    ConstantState,
    Gate,
    GRUCell,
    InitialState,
    RecurrentCell,
    ResetBeforeGRUCell,
    ShowAttendAndTellDecoder,
)

LENGTHS = torch.tensor([[3, 5], [4, 1]])


Cell = Callable[[Tensor, Tensor], Tensor]
"""x (1, inputs), h[t-1] (1, H) -> h[t]."""


def gru_decoder(cell: type[RecurrentCell] = GRUCell) -> ShowAttendAndTellDecoder:
    return decoder(cell=cell(), gate=Gate())


def torch_cell(model: ShowAttendAndTellDecoder) -> nn.GRUCell:
    """torch's cell of the input [Ey; z] with the decoder's weights."""
    word, state = model.gates_from_word, model.gates_from_state.weight
    cell = nn.GRUCell(word.in_features + state.shape[1] - HIDDEN, HIDDEN).double()
    with torch.no_grad():
        cell.weight_ih.copy_(torch.cat((word.weight, state[:, HIDDEN:]), 1))
        cell.weight_hh.copy_(state[:, :HIDDEN])
        cell.bias_ih.copy_(word.bias)
        cell.bias_hh.copy_(torch.cat((torch.zeros(2 * HIDDEN), model.cell.candidate_bias)))
    return cell


def chung(model: ShowAttendAndTellDecoder) -> Cell:
    """Chung et al. 2014, eqs. 5 to 8, with the decoder's weights: x is [Ey; z], and their z is 1 - u."""
    word, state = model.gates_from_word, model.gates_from_state.weight
    of_x, of_h = torch.cat((word.weight, state[:, HIDDEN:]), 1), state[:, :HIDDEN]

    def gate(block: int) -> tuple[Tensor, Tensor, Tensor]:
        rows = slice(block * HIDDEN, (block + 1) * HIDDEN)
        return of_x[rows], of_h[rows], word.bias[rows]

    def cell(x: Tensor, h: Tensor) -> Tensor:
        (w_r, u_r, b_r), (w_z, u_z, b_z), (w, u, b) = map(gate, range(3))
        r = 1 / (1 + torch.exp(-(w_r @ x[0] + u_r @ h[0] + b_r)))
        z = 1 / (1 + torch.exp(w_z @ x[0] + u_z @ h[0] + b_z))
        candidate = torch.tanh(w @ x[0] + u @ (r * h[0]) + b)
        return torch.stack([(1 - z[j]) * h[0, j] + z[j] * candidate[j] for j in range(HIDDEN)])[None]

    return cell


def in_a_loop(
    model: ShowAttendAndTellDecoder, cell: Cell, regions: Tensor, fed: Tensor
) -> tuple[Tensor, Tensor]:
    """Logits (T, V) and weights (T, L) of one caption: regions (L, D), input words (T,)."""
    score = model.attention.score
    hidden = model.initial.hidden(regions.mean(0, keepdim=True))
    logits, weights = [], []
    for word in fed:
        compared = (score.region(regions) + score.query(hidden)).tanh()
        alpha = score.energy(compared).squeeze(-1).softmax(0)  # of h[t-1]
        context = torch.sigmoid(model.gate.project(hidden)) * (alpha @ regions)
        embedded = model.embed.weight[word][None]
        hidden = cell(torch.cat((embedded, context), 1), hidden)
        logits.append(model.readout(embedded, hidden, context)[0])
        weights.append(alpha)
    return torch.stack(logits), torch.stack(weights)


Gradients = dict[str, Tensor | None]


def gradients(model: ShowAttendAndTellDecoder, cell: Cell) -> tuple[Gradients, Gradients]:
    """Compare logits and weights with the cell in a loop; returns the gradients of both, by the decoder's names."""
    regions, words = images(2), sentences(LENGTHS)
    unrolled = unroll(model, regions, words, LENGTHS)
    logits, weights = unrolled.unpack(unrolled.logits), unrolled.unpack(unrolled.trace.weights)
    captions = [(b, k) for b in range(2) for k in range(2)]
    expected = {(b, k): in_a_loop(model, cell, regions[b], words[b, k, : LENGTHS[b, k]]) for b, k in captions}
    for (b, k), (one, alpha) in expected.items():
        torch.testing.assert_close(logits[b, k, : LENGTHS[b, k]], one)
        torch.testing.assert_close(weights[b, k, : LENGTHS[b, k]], alpha)
    unrolled.logits.square().sum().backward()
    ours = {name: tensor.grad for name, tensor in model.named_parameters()}
    model.zero_grad()
    sum(one.square().sum() for one, _ in expected.values()).backward()
    return ours, {name: tensor.grad for name, tensor in model.named_parameters()}


def test_a_gru_decoder_is_torchs_cell_in_a_loop_with_attention() -> None:
    """Values, weights and gradients."""
    model = gru_decoder()
    ours, expected = gradients(model, cell := torch_cell(model))
    word = ours["gates_from_word.weight"].shape[1]
    torch.testing.assert_close(ours["gates_from_word.weight"], cell.weight_ih.grad[:, :word])
    torch.testing.assert_close(ours["gates_from_word.bias"], cell.bias_ih.grad)
    state = torch.cat((cell.weight_hh.grad, cell.weight_ih.grad[:, word:]), 1)
    torch.testing.assert_close(ours["gates_from_state.weight"], state)
    torch.testing.assert_close(ours["cell.candidate_bias"], cell.bias_hh.grad[2 * HIDDEN :])
    for name, gradient in expected.items():
        if not name.startswith(("gates", "cell.")):
            torch.testing.assert_close(ours[name], gradient, msg=name)


def test_the_gru_whose_reset_gate_comes_first_is_that_of_chung_et_al() -> None:
    model = gru_decoder(ResetBeforeGRUCell)
    ours, expected = gradients(model, chung(model))
    for name, gradient in expected.items():
        torch.testing.assert_close(ours[name], gradient, msg=name)


@pytest.mark.parametrize("cell", [GRUCell, ResetBeforeGRUCell])
def test_the_state_of_a_gru_is_h_alone(cell: type[RecurrentCell]) -> None:
    model = gru_decoder(cell)
    assert {name.partition(".")[0] for name, _ in model.initial.named_parameters()} == {"hidden"}
    state = model.start(model.project(one_row(images(2))), hypotheses=3)
    assert state.carried.cell is None
    _, state = model.step(state, torch.ones(2, 3, dtype=torch.long))
    assert state.carried.cell is None
    assert state.carried.hidden.shape == (2, 3, HIDDEN)


def test_the_state_of_a_gru_keeps_single_precision_under_autocast() -> None:
    """Unlike an LSTM's, its h is the sum over the steps."""
    model, words = gru_decoder().float(), sentences(LENGTHS)
    with torch.autocast("cpu", torch.bfloat16):
        state = model.start(model.project(one_row(images(2).float())), 2)
        assert state.carried.hidden.dtype == torch.float32
        assert model.step(state, words[..., 0])[1].carried.hidden.dtype == torch.float32


@pytest.mark.parametrize("initial", [ConstantState(), InitialState(dropout=0)])
def test_fresh_weights_of_a_gru(initial: ConstantState | InitialState) -> None:
    """The columns of h are orthogonal block by block; the bias that is asked for is that of the gate that keeps h."""
    model = ShowAttendAndTellDecoder(
        decoder().attention, 5, HIDDEN, initial=initial, forget_bias=1.5, cell=GRUCell()
    )
    model.build((3,), 7, padding=0, start=1)
    for block in model.gates_from_state.weight[:, :HIDDEN].split(HIDDEN):
        torch.testing.assert_close(block @ block.T, torch.eye(HIDDEN))
    reset, update, candidate = model.gates_from_word.bias.chunk(3)
    assert (update == 1.5).all()
    assert (torch.cat((reset, candidate, model.cell.candidate_bias)) == 0).all()
