"""Weights in somebody else's hands, through steps, unrolls and searches."""

from __future__ import annotations

import pytest
import torch
from caption.attention.forced import ForcedAttention, Forcing, force, with_parts
from tiny_captioner import captioner, photo
from torch import Tensor

from caption.analysis.replay import encode
from caption.attention import Alignment, Look, Memory, Multinoulli, Softmax
from caption.captioner import Captioner
from caption.errors import UserError
from caption.search import BeamSearch
from caption.text.vocabulary import START

REGIONS = 64


def onto(region: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.tensor(region), REGIONS).float()


def model(alignment: Alignment | None = None) -> Captioner:
    return captioner(search=BeamSearch(beam_size=3, max_length=6, candidates=3), alignment=alignment)


def regions(count: int = 2) -> object:
    return encode(model(), [photo(seed=seed) for seed in range(count)])[0]


@pytest.mark.parametrize("alignment", [Softmax, Multinoulli])
@pytest.mark.parametrize("edit", [lambda weights, step: None, lambda weights, step: weights])
def test_an_edit_that_leaves_all_as_it_is_changes_nothing(alignment, edit):
    plain = model(alignment())
    edited = with_parts(plain, decoder=force(plain.decoder, edit))
    for a, b in zip(plain.generate(regions()), edited.generate(regions()), strict=True):
        if isinstance(a, Tensor):
            assert torch.equal(a, b)
        else:
            assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True) if x is not None)


def test_a_search_reads_where_it_is_told_at_the_steps_it_is_told():
    plain = model()
    decoder = force(plain.decoder, lambda weights, step: onto(5) if step in (0, 2) else None)
    found = with_parts(plain, decoder=decoder).generate(regions())
    weights, lengths = found.trace.weights, found.lengths
    assert lengths.min() > 3
    for step in range(4):
        told = (weights[:, :, step] == onto(5)).all(-1)
        assert told.all() == (step in (0, 2))
        assert told.any() == (step in (0, 2))


def test_other_weights_make_other_captions():
    plain = model()
    far = with_parts(plain, decoder=force(plain.decoder, lambda weights, step: onto(63)))
    before, after = plain.generate(regions()), far.generate(regions())
    assert not torch.equal(before.word_log_probs, after.word_log_probs)


def test_the_context_is_the_average_under_the_new_weights():
    plain = model()
    memory = plain.project(regions())
    seen = {}

    def edit(weights: Tensor, step: int) -> Tensor:
        seen[step] = weights
        return torch.stack((onto(3), onto(4), (onto(1) + onto(2)) / 2))  # one for each of K queries

    attention = ForcedAttention(plain.decoder.attention, edit)
    query = torch.randn(2, 3, 7)
    look = attention(query, memory, attention.start(memory, 3))
    values = memory.values
    assert torch.allclose(look.context[:, 0], values[:, 3])
    assert torch.allclose(look.context[:, 2], (values[:, 1] + values[:, 2]) / 2, atol=1e-6)
    assert look.weights.shape == (2, 3, REGIONS)
    # It is given the mechanism's own weights.
    assert torch.equal(seen[0], plain.decoder.attention(query, memory).weights)


def test_what_is_not_given_to_any_region_is_not_read():
    plain = model()
    memory = plain.project(regions())
    attention = ForcedAttention(plain.decoder.attention, lambda weights, step: weights * 0)
    look = attention(torch.randn(2, 1, 7), memory, attention.start(memory, 1))
    assert not look.context.any()


def test_unrolling_and_stepping_are_edited_alike():
    plain = model()
    decoder = force(plain.decoder, lambda weights, step: onto(7) if step == 1 else weights.flip(-1))
    memory = decoder.project(regions().vectors)
    words = torch.tensor([[[START, 4, 5, 6], [START, 7, 0, 0]], [[START, 6, 5, 0], [START, 8, 4, 7]]])
    lengths = torch.tensor([[4, 2], [3, 4]])
    unrolled = decoder(memory, words, lengths)
    log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1))
    weights = unrolled.unpack(unrolled.trace.weights)
    state = decoder.start(memory, 2)
    for step in range(4):
        stepped, state = decoder.step(state, words[:, :, step])
        running = lengths > step
        assert torch.allclose(log_probs[:, :, step][running], stepped[running], atol=1e-5)
        assert torch.allclose(weights[:, :, step][running], state.trace.weights[running], atol=1e-6)
    assert (weights[:, :, 1] == onto(7)).all()


def test_hard_attention_that_is_edited_has_chosen_nothing():
    plain = model(Multinoulli(at_test="argmax"))
    memory = plain.project(regions())
    attention = ForcedAttention(plain.decoder.attention, lambda weights, step: onto(9) if step else None)
    query = torch.randn(2, 1, 7)
    first = attention(query, memory, attention.start(memory, 1))
    assert (first.location >= 0).all()
    second = attention(query, memory, first.state)
    assert (second.location == -1).all()
    assert not second.log_prob.any()
    assert torch.allclose(second.context[:, 0], memory.values[:, 9])


def test_the_steps_are_counted_in_the_state_and_not_on_the_module():
    plain = model()
    memory = plain.project(regions())
    steps = []
    attention = ForcedAttention(plain.decoder.attention, lambda weights, step: steps.append(step))
    start = attention.start(memory, 2)
    assert isinstance(start, Forcing)
    query = torch.randn(2, 2, 7)
    state = attention(query, memory, start).state
    attention(query, memory, state)
    attention(query, memory, start)
    assert steps == [0, 1, 0]


def test_the_decoder_given_is_left_alone_and_its_weights_are_shared():
    plain = model()
    before = plain.decoder.attention
    forced = force(plain.decoder, lambda weights, step: onto(0))
    assert plain.decoder.attention is before
    assert isinstance(forced.attention, ForcedAttention)
    assert {id(p) for p in forced.parameters()} == {id(p) for p in plain.decoder.parameters()}
    assert forced.attention.context_size == before.context_size


def test_a_mechanism_that_reads_something_else_is_refused():
    plain = model()

    class Gated(type(plain.decoder.attention)):
        def forward(self, query: Tensor, memory: Memory, state: object = None) -> Look:
            look = super().forward(query, memory, state)
            return look._replace(context=look.context / 2)

    gated = Gated(plain.decoder.attention.score, plain.decoder.attention.alignment)
    gated.context_size = plain.decoder.attention.context_size
    forced = ForcedAttention(gated, lambda weights, step: onto(0) if step else None)
    memory = plain.project(regions())
    first = forced(torch.randn(2, 1, 7), memory, forced.start(memory, 1))  # nothing edited, nothing to refuse
    with pytest.raises(UserError, match="weights of Gated cannot be edited"):
        forced(torch.randn(2, 1, 7), memory, first.state)


def test_a_decoder_without_a_mechanism_is_refused():
    with pytest.raises(UserError, match="Linear has no attention"):
        force(torch.nn.Linear(1, 1), lambda weights, step: None)
