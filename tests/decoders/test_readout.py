"""Dropout of the read-out, and of its state; test_show_attend_and_tell_equations has the equation."""

from __future__ import annotations

import pytest
import torch

from caption.decoders import DeepOutput, LinearOutput
from caption.errors import UserError


@pytest.mark.parametrize("readout", [DeepOutput(dropout=1.0), LinearOutput(dropout=1.0)])
def test_dropout_of_everything_leaves_the_bias(readout: DeepOutput | LinearOutput):
    readout.build(2, 3, 4, 5)
    logits = readout.train()(torch.randn(1, 2), torch.randn(1, 3), torch.randn(1, 4))
    torch.testing.assert_close(logits[0], readout.to_words.bias)


def test_the_state_is_left_out_as_a_whole_at_a_share_of_the_training_steps():
    readout = DeepOutput(dropout=0.0, without_hidden=0.25)
    readout.build(embedding_size=4, hidden_size=3, context_size=5, vocabulary_size=6)
    without = DeepOutput(dropout=0.0)
    without.build(embedding_size=4, hidden_size=3, context_size=5, vocabulary_size=6)
    without.load_state_dict(readout.state_dict())
    embedded, hidden, context = (torch.randn(2000, size) for size in (4, 3, 5))
    whole = without(embedded, hidden, context)
    of_context = without.to_words(embedded + without.from_context(context))
    logits = readout(embedded, hidden, context)
    left_out = (logits == of_context).all(-1)
    assert torch.equal(logits[~left_out], whole[~left_out])
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
