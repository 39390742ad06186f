"""Word vectors and the last layer as one parameter."""

from __future__ import annotations

import copy

import pytest
import torch
from helpers.tiny_decoder import WORDS, decoder, images, sentences, unroll

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.decoders import LinearOutput, ShowAttendAndTellDecoder, TopDownDecoder
from caption.errors import UserError
from caption.parts import make


def top_down(embedding_size: int) -> TopDownDecoder:
    model = TopDownDecoder(
        ScoredAttention(AdditiveScore(6), Softmax()), embedding_size, hidden_size=4, tie_weights=True
    )
    model.build((3,), WORDS, padding=0, start=1)
    return model


@pytest.mark.parametrize("kind", ["lstm", "top-down"])
def test_both_uses_train_one_parameter(kind: str):
    model = decoder(tie_weights=True) if kind == "lstm" else top_down(4).double()
    last = model.readout.to_words if kind == "lstm" else model.to_words
    assert last.weight is model.embed.weight
    lengths = torch.tensor([[2]])
    words = sentences(lengths)
    unroll(model, images(1), words, lengths).logits.logsumexp(-1).sum().backward()
    rows = model.embed.weight.grad.abs().sum(1)
    assert (rows > 0).all()  # the read-out uses every word, the input only two
    assert sum(parameter is last.weight for parameter in model.parameters()) == 1


def test_they_stay_one_in_copies_and_after_loading():
    model = decoder(tie_weights=True)
    for other in (copy.deepcopy(model), make(model.spec, ShowAttendAndTellDecoder)):
        if not hasattr(other, "embed"):
            other.build((3,), WORDS, padding=0, start=1)
        other.load_state_dict(model.state_dict())
        assert other.readout.to_words.weight is other.embed.weight
        assert torch.equal(other.embed.weight.double(), model.embed.weight)


def test_lengths_that_differ_are_named():
    with pytest.raises(UserError, match="embedding_size is 5, the input 4"):
        top_down(5)
    with pytest.raises(UserError, match="embedding_size is 5, the input 4"):
        decoder(tie_weights=True, readout=LinearOutput())
