"""The LSTM decoder against a NumPy implementation of eqs. 1 to 7, and the state that each part reads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers.loops import Vector, additive, linear, lstm, parameters, sigmoid, softmax, weighted
from helpers.tiny_decoder import HIDDEN, WORDS, decoder, images, sentences, unroll
from helpers.tiny_views import one_row
from torch import Tensor, nn

from caption.decoders import (
    ConstantState,
    DeepOutput,
    Gate,
    InitialState,
    LinearOutput,
    Readout,
    ShowAttendAndTellDecoder,
)

LENGTHS = torch.tensor([[3, 5], [4, 1]])
START = 1
Weights = dict[str, np.ndarray]
VARIANTS: dict[str, dict[str, Any]] = {
    "paper, no gate": {},
    "scalar gate": {"gate": Gate("scalar")},
    "vector gate": {"gate": Gate("vector")},
    "tanh around the sum": {"readout": DeepOutput(activation="tanh", dropout=0)},
    "without the previous word": {"readout": DeepOutput(previous_word=False, dropout=0), "gate": Gate()},
    "without the context": {"readout": DeepOutput(context=False, dropout=0), "gate": Gate()},
    "only the state": {"readout": DeepOutput(previous_word=False, context=False, dropout=0)},
    "linear output": {"readout": LinearOutput(dropout=0), "gate": Gate("vector")},
    "linear initial state": {"initial": InitialState(activation="linear", dropout=0)},
    "three initial layers": {"initial": InitialState(layers=3, dropout=0)},
    "shared initial layers": {"initial": InitialState(layers=3, dropout=0, shared=True)},
    "first input zero": {"first_input": "zero", "gate": Gate()},
    "constant initial state": {"initial": ConstantState()},
}


# -- the equations -----------------------------------------------------------------------------------------


class Step(NamedTuple):
    logits: Vector
    weights: Vector
    gate: Vector | None
    """(1,) or (D,)"""
    hidden: Vector
    """h[t]"""
    cell: Vector
    """c[t]"""


def reference(decoder: ShowAttendAndTellDecoder, regions: np.ndarray, words: list[int]) -> list[Step]:
    """The steps of one caption: `regions` (L, D), `words` the input ids."""
    p = parameters(decoder)
    hidden, cell = (initial(decoder, p, f"initial.{name}", regions) for name in ("hidden", "cell"))
    steps = []
    for word in words:
        embedded = p["embed.weight"][word] * (decoder.first_input != "zero" or word != START)
        scores = [additive(p, "attention.score", region, hidden) for region in regions]  # eq. 4, with h[t-1]
        weights = softmax(scores)  # eq. 5
        context, beta = weighted(weights, regions), None  # eq. 6
        if decoder.gate is not None:
            beta = sigmoid(linear(p, "gate.project", hidden))  # with h[t-1]
            context = beta * context
        gates = linear(p, "gates_from_state", np.concatenate((hidden, context)))
        hidden, cell = lstm(linear(p, "gates_from_word", embedded) + gates, cell)  # eqs. 1 to 3
        logits = read_out(decoder.readout, p, embedded, hidden, context)
        steps.append(Step(logits, weights, beta, hidden, cell))
    return steps


def initial(decoder: ShowAttendAndTellDecoder, p: Weights, name: str, regions: np.ndarray) -> Vector:
    if isinstance(decoder.initial, ConstantState):
        return p[name]
    x = regions.mean(axis=0)
    trunk, own = (
        sorted({key.rpartition(".")[0] for key in p if key.startswith(f"{part}.")})
        for part in ("initial.trunk", name)
    )
    for layer in [*trunk, *own[:-1]]:
        x = np.maximum(linear(p, layer, x), 0)
    x = linear(p, own[-1], x)
    return np.tanh(x) if decoder.initial.activation == "tanh" else x


def read_out(readout: Readout, p: Weights, embedded: Vector, hidden: Vector, context: Vector) -> Vector:
    if not isinstance(readout, DeepOutput):
        return linear(p, "readout.to_words", hidden)
    joined = linear(p, "readout.from_hidden", hidden)
    if readout.previous_word:
        joined = joined + embedded
    if readout.context:
        joined = joined + linear(p, "readout.from_context", context)
    return linear(p, "readout.to_words", np.tanh(joined) if readout.activation == "tanh" else joined)  # eq. 7


def beginning_with_start(words: Tensor) -> Tensor:
    words[..., 0] = START
    return words


@pytest.fixture(params=VARIANTS, ids=str)
def model(request: pytest.FixtureRequest) -> ShowAttendAndTellDecoder:
    return decoder(**VARIANTS[request.param])


def near(tensor: Tensor, array: np.ndarray, tolerance: float = 1e-10) -> None:
    np.testing.assert_allclose(tensor.detach().numpy(), array, rtol=0, atol=tolerance)


def test_the_unroll_is_the_equations(model: ShowAttendAndTellDecoder):
    regions, words = images(2), beginning_with_start(sentences(LENGTHS))
    unrolled = unroll(model, regions, words, LENGTHS)
    logits = unrolled.unpack(unrolled.logits)
    weights = unrolled.unpack(unrolled.trace.weights)
    assert (unrolled.trace.gate is None) == (model.gate is None)
    for b in range(2):
        for k in range(2):
            fed = words[b, k, : LENGTHS[b, k]].tolist()
            for t, step in enumerate(reference(model, regions[b].numpy(), fed)):
                near(logits[b, k, t], step.logits)
                near(weights[b, k, t], step.weights)
                if unrolled.trace.gate is not None and step.gate is not None:
                    near(unrolled.unpack(unrolled.trace.gate)[b, k, t], step.gate.mean())


# -- the state that each part reads ------------------------------------------------------------------------


class Inputs:
    """Records the arguments of each call of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.calls: list[tuple[Any, ...]] = []
        module.register_forward_pre_hook(lambda _, arguments: self.calls.append(arguments))


def test_attention_and_gate_read_the_state_before_and_the_readout_the_state_after():
    model = decoder(gate=Gate())
    attended, gated, read = Inputs(model.attention), Inputs(model.gate), Inputs(model.readout)
    state = model.start(model.project(one_row(images(1))))
    for word in (3, 1, 4):
        before = state.carried
        _, state = model.step(state, torch.tensor([[word]]))
        assert torch.equal(attended.calls[-1][0].hidden, before.hidden)
        assert torch.equal(attended.calls[-1][0].cell, before.cell)
        assert torch.equal(attended.calls[-1][0].word, model.embed.weight[word].expand(1, 1, -1))
        assert attended.calls[-1][0].previous is None
        assert torch.equal(gated.calls[-1][0], before.hidden)
        assert torch.equal(read.calls[-1][1], state.carried.hidden)
        assert not torch.allclose(before.hidden, state.carried.hidden)


# -- the first input ---------------------------------------------------------------------------------------


def test_a_zero_first_input_ignores_the_embedding_and_is_not_trained():
    model = decoder(first_input="zero", gate=Gate())
    words, lengths = torch.tensor([[[START, 3, 4]]]), torch.tensor([[3]])
    before = unroll(model, images(1), words, lengths).logits
    before.square().sum().backward()
    assert not model.embed.weight.grad[START].any()
    assert model.embed.weight.grad[3].any()
    with torch.no_grad():
        model.embed.weight[START] += 1
        assert torch.equal(unroll(model, images(1), words, lengths).logits, before)
        model.embed.weight[3] += 1
        assert not torch.allclose(unroll(model, images(1), words, lengths).logits, before)


@pytest.mark.parametrize("start", [1, 4])
def test_the_zero_first_input_is_that_of_the_id_it_was_built_with(start: int):
    model = ShowAttendAndTellDecoder(
        decoder().attention, embedding_size=5, hidden_size=HIDDEN, first_input="zero"
    )
    model.build((3,), WORDS, padding=0, start=start)
    read = Inputs(model.eval().double().readout)
    model.step(model.start(model.project(one_row(images(1))), hypotheses=2), torch.tensor([[1, 4]]))
    embedded = read.calls[0][0][0]
    assert [bool(vector.any()) for vector in embedded] == [start != 1, start != 4]


def test_another_first_input_is_refused():
    with pytest.raises(ValueError, match="first_input must be one of 'start', 'zero', not 'none'"):
        ShowAttendAndTellDecoder(decoder().attention, first_input="none")


# -- initial weights ---------------------------------------------------------------------------------------


def fresh(**options: Any) -> ShowAttendAndTellDecoder:
    model = ShowAttendAndTellDecoder(decoder().attention, embedding_size=5, hidden_size=HIDDEN, **options)
    model.build((3,), WORDS, padding=0, start=1)
    return model


@pytest.mark.parametrize("bias", [0.0, 1.5])
def test_only_the_forget_gate_gets_the_forget_bias(bias: float):
    i, f, o, g = fresh(forget_bias=bias).gates_from_word.bias.chunk(4)
    assert (f == bias).all()
    assert (torch.cat((i, o, g)) == 0).all()


def test_recurrent_weights_are_orthogonal_gate_by_gate():
    for block in fresh().gates_from_state.weight[:, :HIDDEN].chunk(4):
        torch.testing.assert_close(block @ block.T, torch.eye(HIDDEN))


# -- dropout -----------------------------------------------------------------------------------------------


def test_dropout_acts_in_training_alone():
    model = decoder(dropout=0.5)
    lengths = torch.tensor([[4]])
    regions, words = images(1), sentences(lengths)
    first, second = (unroll(model.train(), regions, words, lengths).logits for _ in range(2))
    assert not torch.allclose(first, second)
    first, second = (unroll(model.eval(), regions, words, lengths).logits for _ in range(2))
    assert torch.equal(first, second)


def test_dropout_on_words_is_for_the_lstm_and_not_for_the_readout():
    model = ShowAttendAndTellDecoder(
        decoder().attention, embedding_size=5, hidden_size=HIDDEN, dropout=1.0, readout=DeepOutput(dropout=0)
    )
    model.build((3,), WORDS, padding=0, start=1)
    inputs, read = Inputs(model.gates_from_word), Inputs(model.readout)
    model.train()
    model.double()
    model.step(model.start(model.project(one_row(images(1)))), torch.tensor([[3]]))
    assert (inputs.calls[0][0] == 0).all()
    assert torch.equal(read.calls[0][0][0, 0], model.embed.weight[3])
