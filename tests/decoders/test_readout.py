"""The read-out from state, context and word to logits: eq. 7, worked out by hand."""

from __future__ import annotations

import pytest
import torch

from caption.decoders import DeepOutput, LinearOutput

EMBEDDED = torch.tensor([[1.0, 2.0]])
HIDDEN = torch.tensor([[3.0]])
CONTEXT = torch.tensor([[0.5, -1.0, 0.0]])


def by_hand(**options: object) -> DeepOutput:
    """L_h = (1, -1)ᵀ with bias (0.1, 0), L_z = (2 0 0; 0 1 0), L_o = (1 0; 0 1; 1 1) with bias (0, 0, 5)."""
    readout = DeepOutput(dropout=0.0, **options)
    readout.build(embedding_size=2, hidden_size=1, context_size=3, vocabulary_size=3)
    with torch.no_grad():
        readout.from_hidden.weight.copy_(torch.tensor([[1.0], [-1.0]]))
        readout.from_hidden.bias.copy_(torch.tensor([0.1, 0.0]))
        if readout.context:
            readout.from_context.weight.copy_(torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
        readout.to_words.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        readout.to_words.bias.copy_(torch.tensor([0.0, 0.0, 5.0]))
    return readout


@pytest.mark.parametrize(
    ("options", "joined"),
    [
        ({}, (1 + 3.1 + 1, 2 - 3 - 1)),
        ({"previous_word": False}, (3.1 + 1, -3 - 1)),
        ({"context": False}, (1 + 3.1, 2 - 3)),
        ({"previous_word": False, "context": False}, (3.1, -3)),
    ],
)
@pytest.mark.parametrize("activation", ["linear", "tanh"])
def test_by_hand(options: dict[str, bool], joined: tuple[float, float], activation: str):
    first, second = torch.tensor(joined).tanh() if activation == "tanh" else torch.tensor(joined)
    logits = by_hand(activation=activation, **options)(EMBEDDED, HIDDEN, CONTEXT)
    torch.testing.assert_close(logits, torch.stack((first, second, first + second + 5))[None])


def test_a_term_that_is_left_out_has_no_weights():
    assert not any(name.startswith("from_context") for name in by_hand(context=False).state_dict())


@pytest.mark.parametrize("readout", [DeepOutput(dropout=0), LinearOutput(dropout=0)])
def test_any_leading_shape(readout: DeepOutput | LinearOutput):
    readout.build(2, 3, 4, 5)
    inputs = torch.randn(6, 7, 2), torch.randn(6, 7, 3), torch.randn(6, 7, 4)
    together = readout(*inputs)
    assert together.shape == (6, 7, 5)
    torch.testing.assert_close(readout(*(x.flatten(0, 1) for x in inputs)), together.flatten(0, 1))


@pytest.mark.parametrize("readout", [DeepOutput(dropout=1.0), LinearOutput(dropout=1.0)])
def test_dropout_of_everything_leaves_the_bias(readout: DeepOutput | LinearOutput):
    readout.build(2, 3, 4, 5)
    logits = readout.train()(torch.randn(1, 2), torch.randn(1, 3), torch.randn(1, 4))
    torch.testing.assert_close(logits[0], readout.to_words.bias)


def test_a_linear_output_depends_only_on_the_state():
    readout = LinearOutput(dropout=0)
    readout.build(2, 3, 4, 5)
    hidden = torch.randn(1, 3)
    first, second = (readout(torch.randn(1, 2), hidden, torch.randn(1, 4)) for _ in range(2))
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(first, readout.to_words(hidden))
