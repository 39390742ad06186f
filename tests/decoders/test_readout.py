"""The read-out from state, context and word to logits: eq. 7, worked out by hand."""

from __future__ import annotations

import pytest
import torch

from caption.decoders import DeepOutput, LinearOutput
from caption.errors import UserError

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


def test_the_state_is_left_out_as_a_whole_at_a_share_of_the_training_steps():
    readout = DeepOutput(dropout=0.0, without_hidden=0.25)
    readout.build(embedding_size=4, hidden_size=3, context_size=5, vocabulary_size=6)
    without = DeepOutput(dropout=0.0)
    without.build(embedding_size=4, hidden_size=3, context_size=5, vocabulary_size=6)
    without.load_state_dict(readout.state_dict())
    embedded, hidden, context = (torch.randn(2000, size) for size in (4, 3, 5))
    whole = without(embedded, hidden, context)
    of_context = without.to_words(embedded + without.from_context(context))
    found = readout(embedded, hidden, context)
    left_out = (found == of_context).all(-1)
    assert torch.equal(found[~left_out], whole[~left_out])
    assert left_out.float().mean() == pytest.approx(0.25, abs=0.04)  # four standard deviations
    readout.eval()
    assert torch.equal(readout(embedded, hidden, context), whole)


def test_a_readout_needs_the_context_where_it_leaves_out_the_state():
    with pytest.raises(
        UserError, match=r"without_hidden is 0\.5, and must be between 0 and 1, and 0 for a read-out"
    ):
        DeepOutput(context=False, without_hidden=0.5)
    with pytest.raises(UserError, match=r"without_hidden is 1\.5"):
        DeepOutput(without_hidden=1.5)
