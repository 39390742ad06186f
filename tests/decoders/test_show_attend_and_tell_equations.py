"""The paper's decoder, with an LSTM or a GRU, against a NumPy implementation of eqs. 1 to 7; its query, first input and
dropout."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from helpers.loops import Vector, additive, linear, lstm, parameters, sigmoid, softmax, weighted
from helpers.tiny_decoder import HIDDEN, WORDS, decoder, images, sentences, unroll
from helpers.tiny_views import one_row
from torch import Tensor, nn

from caption import decoders
from caption.core.errors import UserError
from caption.decoders import ConstantState, DeepOutput, Gate, InitialState, ShowAttendAndTellDecoder
from caption.decoders.cells import LSTMCell

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
    "linear output": {"readout": decoders.LinearOutput(dropout=0), "gate": Gate("vector")},
    "linear initial state": {"initial": InitialState(activation="linear", dropout=0)},
    "three initial layers": {"initial": InitialState(layers=3, dropout=0)},
    "shared initial layers": {"initial": InitialState(layers=3, dropout=0, shared=True)},
    "first input zero": {"first_input": "zero", "gate": Gate()},
    "constant initial state": {"initial": ConstantState()},
    "GRU": {"cell": decoders.GRUCell(), "gate": Gate()},
    "GRU, reset before": {"cell": decoders.ResetBeforeGRUCell(), "gate": Gate()},
}


class Step(NamedTuple):
    logits: Vector
    weights: Vector
    gate: Vector | None
    """(1,) or (D,)"""


def reference(
    decoder: ShowAttendAndTellDecoder, p: Weights, regions: np.ndarray, words: list[int]
) -> list[Step]:
    """The steps of one caption: `regions` (L, D), `words` the input ids."""
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
        if isinstance(decoder.cell, LSTMCell):
            gates = linear(p, "cell.from_state", np.concatenate((hidden, context)))
            hidden, cell = lstm(linear(p, "cell.from_word", embedded) + gates, cell)  # eqs. 1 to 3
        else:
            hidden = gru(p, embedded, context, hidden)
        logits = read_out(decoder.readout, p, embedded, hidden, context)
        steps.append(Step(logits, weights, beta))
    return steps


def gru(p: Weights, embedded: Vector, context: Vector, hidden: Vector) -> Vector:
    """Chung et al. 2014, eqs. 5 to 8, with u = 1 - z: the reset gate r multiplies h; with a bias d of its own, it
    multiplies W_nh h + d, as in cuDNN."""
    if "cell.from_hidden.weight" in p:
        of_hidden, of_context = p["cell.from_hidden.weight"], p["cell.from_inputs.weight"]
    else:
        both = np.concatenate((p["cell.gates_from_state.weight"], p["cell.candidate_from_state.weight"]))
        of_hidden, of_context = both[:, :HIDDEN], both[:, HIDDEN:]
    of_x = linear(p, "cell.from_word", embedded) + of_context @ context
    w_r, w_u, w_n = np.split(of_hidden, 3)
    x_r, x_u, x_n = np.split(of_x, 3)
    r, u = sigmoid(x_r + w_r @ hidden), sigmoid(x_u + w_u @ hidden)
    d = p.get("cell.candidate_bias")
    candidate = np.tanh(x_n + (w_n @ (r * hidden) if d is None else r * (w_n @ hidden + d)))
    return (1 - u) * candidate + u * hidden


def initial(decoder: ShowAttendAndTellDecoder, p: Weights, name: str, regions: np.ndarray) -> Vector | None:
    if isinstance(decoder.initial, ConstantState) or not any(key.startswith(name) for key in p):
        return p.get(name)  # GRUs have no cell
    x = regions.mean(axis=0)
    trunk, own = (
        sorted({key.rpartition(".")[0] for key in p if key.startswith(f"{part}.")})
        for part in ("initial.trunk", name)
    )
    for layer in [*trunk, *own[:-1]]:
        x = np.maximum(linear(p, layer, x), 0)
    x = linear(p, own[-1], x)
    return np.tanh(x) if decoder.initial.activation == "tanh" else x


def read_out(
    readout: decoders.Readout, p: Weights, embedded: Vector, hidden: Vector, context: Vector
) -> Vector:
    if not isinstance(readout, DeepOutput):
        return linear(p, "readout.to_words", hidden)
    joined = linear(p, "readout.from_hidden", hidden)
    if readout.previous_word:
        joined = joined + embedded
    if readout.context:
        joined = joined + linear(p, "readout.from_context", context)
    return linear(p, "readout.to_words", np.tanh(joined) if readout.activation == "tanh" else joined)  # eq. 7


def near(tensor: Tensor, array: np.ndarray) -> None:
    np.testing.assert_allclose(tensor.detach().numpy(), array, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", VARIANTS)
def test_the_unroll_is_the_equations(name: str):
    """Logits, weights and gates; and the gradient by autograd, in a random direction of regions and parameters, against
    central differences of the equations."""
    model = decoder(**VARIANTS[name])
    regions, words = images(2).requires_grad_(), sentences(LENGTHS)
    words[..., 0] = START
    unrolled = unroll(model, regions, words, LENGTHS)
    logits, weights = unrolled.unpack(unrolled.logits), unrolled.unpack(unrolled.trace.weights)
    assert (unrolled.trace.gate is None) == (model.gate is None)

    def captions(p: Weights, regions: np.ndarray) -> dict[tuple[int, int], list[Step]]:
        fed = {(b, k): words[b, k, : LENGTHS[b, k]].tolist() for b, k in np.ndindex(2, 2)}
        return {(b, k): reference(model, p, regions[b], fed[b, k]) for b, k in fed}

    for (b, k), steps in captions(parameters(model), regions.detach().numpy()).items():
        for t, step in enumerate(steps):
            near(logits[b, k, t], step.logits)
            near(weights[b, k, t], step.weights)
            if unrolled.trace.gate is not None and step.gate is not None:
                near(unrolled.unpack(unrolled.trace.gate)[b, k, t], step.gate.mean())

    generator = np.random.default_rng(0)
    leaves = {"regions": regions, **dict(model.named_parameters())}
    along = {name: generator.standard_normal(leaf.shape) for name, leaf in leaves.items()}
    into = generator.standard_normal(logits.shape)
    gradients = torch.autograd.grad(
        (logits * torch.tensor(into)).sum(), list(leaves.values()), materialize_grads=True
    )
    slope = sum(
        (gradient.numpy() * along[name]).sum() for name, gradient in zip(leaves, gradients, strict=True)
    )

    def value(size: float) -> float:
        moved = {name: leaf.detach().numpy() + size * along[name] for name, leaf in leaves.items()}
        steps = captions(moved, moved.pop("regions"))
        return sum(into[at][t] @ step.logits for at, each in steps.items() for t, step in enumerate(each))

    np.testing.assert_allclose(slope, (value(1e-5) - value(-1e-5)) / 2e-5, rtol=1e-5)


class Inputs:
    """Records the arguments of each call of a module."""

    def __init__(self, module: nn.Module) -> None:
        self.calls: list[tuple[Any, ...]] = []
        module.register_forward_pre_hook(lambda _, arguments: self.calls.append(arguments))


def test_the_query_is_the_state_before_with_its_word():
    model = decoder(gate=Gate())
    attended = Inputs(model.attention)
    state = model.start(model.project(one_row(images(1))))
    for word in (3, 1, 4):
        before = state.carried
        _, state = model.step(state, torch.tensor([[word]]))
        query = attended.calls[-1][0]
        assert torch.equal(query.hidden, before.hidden)
        assert torch.equal(query.cell, before.cell)
        assert torch.equal(query.word, model.embed.weight[word].expand(1, 1, -1))
        assert query.previous is None


def small(start: int = START, **options: Any) -> ShowAttendAndTellDecoder:
    model = ShowAttendAndTellDecoder(decoder().attention, embedding_size=5, hidden_size=HIDDEN, **options)
    model.build((3,), WORDS, padding=0, start=start)
    return model.double()


@pytest.mark.parametrize("start", [1, 4])
def test_the_zero_first_input_is_that_of_the_id_it_was_built_with(start: int):
    model = small(start, first_input="zero").eval()
    read = Inputs(model.readout)
    model.step(model.start(model.project(one_row(images(1))), hypotheses=2), torch.tensor([[1, 4]]))
    embedded = read.calls[0][0][0]
    assert [bool(vector.any()) for vector in embedded] == [start != 1, start != 4]
    with pytest.raises(UserError, match=r"first_input.*'none'"):
        small(first_input="none")


def test_dropout_on_words_is_for_the_lstm_and_not_for_the_readout_and_in_training_alone():
    model = small(dropout=1.0, readout=DeepOutput(dropout=0))
    inputs, read = Inputs(model.cell.from_word), Inputs(model.readout)
    for training in (True, False):
        model.train(training)
        model.step(model.start(model.project(one_row(images(1)))), torch.tensor([[3]]))
        assert (inputs.calls[-1][0] == 0).all() == training
        assert torch.equal(read.calls[-1][0][0, 0], model.embed.weight[3])
