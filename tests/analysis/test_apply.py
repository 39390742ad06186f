"""A captioner under changes: what it may see, how hard attention reads edited weights, and with which chance."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tiny_captioner import captioner, photo
from torch import Tensor

from caption.analysis.interventions.apply import ChangedAttention, changing, seeded
from caption.analysis.replay import encode
from caption.attention import Alignment, GumbelSoftmax, Multinoulli, Softmax
from caption.captioner import Captioner
from caption.errors import UserError
from caption.search import Greedy
from caption.text.vocabulary import START

REGIONS = 64


def onto(*regions: int) -> Tensor:
    weights = torch.zeros(REGIONS)
    weights[list(regions)] = 1 / len(regions)
    return weights


def model(alignment: Alignment | None = None) -> Captioner:
    return captioner(search=Greedy(max_length=6), alignment=alignment)


def at(step: int, weights: Tensor) -> Any:
    return lambda given, now: weights.expand_as(given) if now == step else given


def steps(made: Captioner, count: int = 3) -> list[Any]:
    """Traces of some steps, word 4 being said at each."""
    state = made.decoder.start(made.project(encode(made, [photo(), photo(seed=1)])[0]), 2)
    traces, fed = [], START
    with torch.no_grad():
        for _ in range(count):
            _, state = made.decoder.step(state, torch.full((2, 2), fed))
            traces.append(state.trace)
            fed = 4
    return traces


@pytest.mark.parametrize("alignment", [Softmax(), Multinoulli(), Multinoulli(at_test="argmax")])
def test_without_changes_it_is_the_same(alignment: Alignment):
    plain = model(alignment)
    regions = encode(plain, [photo(), photo(seed=1)])[0]
    found, same = plain.generate(regions), changing(plain, 0).generate(regions)
    assert torch.equal(found.words, same.words)
    assert torch.equal(found.word_log_probs, same.word_log_probs)


def test_the_captioner_given_stays_and_its_weights_are_shared():
    plain = model()
    attention = plain.decoder.attention
    made = changing(plain, 0, [at(0, onto(3))], torch.arange(REGIONS) > 5)
    assert plain.decoder.attention is attention
    assert isinstance(made.decoder.attention, ChangedAttention)
    assert {id(p) for p in made.parameters()} == {id(p) for p in plain.parameters()}


def test_what_is_not_visible_is_masked_in_the_memory():
    plain = model()
    visible = torch.arange(REGIONS) % 3 > 0
    regions = encode(plain, [photo(), photo(seed=1)])[0]
    memory = changing(plain, 0, visible=visible).project(regions)
    expected = plain.decoder.project(regions.vectors, visible.expand(2, -1))
    assert torch.equal(memory.mask, expected.mask)
    hidden = plain.decoder.start(memory).carried.hidden
    assert torch.equal(hidden, plain.decoder.start(expected).carried.hidden)
    assert not torch.allclose(hidden, plain.decoder.start(plain.project(regions)).carried.hidden)


def test_a_mask_that_is_there_already_stays():
    plain = model()
    visible, real = torch.arange(REGIONS) > 3, torch.arange(REGIONS) < 60
    vectors = encode(plain, [photo()])[1]
    memory = changing(plain, 0, visible=visible).decoder.project(vectors, real[None])
    assert torch.equal(memory.mask[0], visible & real)


def test_edits_follow_one_another_and_cannot_see_what_is_not_there():
    seen = []

    def second(weights: Tensor, step: int) -> Tensor:
        seen.append(weights[0, 0])
        return weights.flip(-1)

    plain = model()
    visible = torch.ones(REGIONS, dtype=torch.bool)
    visible[60] = False
    traces = steps(changing(plain, 0, [at(1, onto(1, 3)), second], visible))
    assert torch.equal(seen[1], onto(1, 3))
    assert torch.equal(traces[1].weights, onto(62).expand(2, 2, -1))  # 60 is lost, the other has all
    assert traces[0].weights[..., 60].eq(0).all()
    assert traces[0].weights.sum(-1) == pytest.approx(torch.ones(2, 2))


def test_steps_without_an_edit_are_left_as_they_are_also_where_something_is_not_visible():
    plain = model()
    visible = torch.arange(REGIONS) > 0
    without, untouched = (steps(changing(plain, 0, edits, visible)) for edits in ([], [at(7, onto(1))]))
    for one, other in zip(without, untouched, strict=True):
        assert torch.equal(one.weights, other.weights)


# -- hard attention --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Multinoulli, GumbelSoftmax])
def test_the_most_probable_of_the_edited_weights_is_read(kind: Any):
    plain = model(kind(at_test="argmax"))
    edited = 0.7 * onto(9) + 0.3 * onto(10)
    made = changing(plain, 0, [at(1, edited)])
    traces = steps(made)
    assert (traces[1].location == 9).all()
    assert torch.allclose(traces[1].weights, edited)  # the distribution, not the choice
    assert all((trace.location >= 0).all() for trace in traces)
    memory = made.project(encode(made, [photo()])[0])
    attention = made.decoder.attention
    state = attention.start(memory, 1)._replace(step=torch.ones(1, 1, dtype=torch.int64))
    context = attention(torch.randn(1, 1, 7), memory, state).context
    assert torch.allclose(context[0, 0], memory.values[0, 9])


def test_an_expectation_is_read_as_one():
    traces = steps(changing(model(Multinoulli(at_test="expectation")), 0, [at(1, onto(9, 10))]))
    assert all((trace.location == -1).all() for trace in traces)
    assert torch.equal(traces[1].weights[0, 0], onto(9, 10))


def test_samples_are_drawn_of_the_edited_weights():
    found = set()
    for seed in range(12):
        made = changing(model(Multinoulli(at_test="sample")), seed, [at(1, onto(9, 10))])
        trace = steps(made)[1]
        found |= set(trace.location.flatten().tolist())
        assert trace.log_prob == pytest.approx(torch.full((2, 2), 0.5).log())
    assert found == {9, 10}


def test_what_is_not_edited_is_drawn_with_the_same_chance():
    plain = model(Multinoulli(at_test="sample"))
    made = [changing(plain, 5), changing(plain, 5, [at(1, onto(9))]), changing(plain, 6)]
    one, edited, other = ([trace.location for trace in steps(each, 4)] for each in made)
    assert torch.equal(one[0], edited[0])
    assert (edited[1] == 9).all()
    assert not torch.equal(one[1], edited[1])
    assert not torch.equal(torch.stack(one), torch.stack(other))
    assert len({tuple(location.flatten().tolist()) for location in one}) > 1  # each step has its own


def test_what_is_read_at_the_edited_step_decides_nothing_of_later_draws():
    """Forced to read what it would have read anyway, it goes on as it would have."""
    plain = model(Multinoulli(at_test="sample"))
    free = steps(changing(plain, 5), 4)
    again = steps(changing(plain, 5, [lambda weights, step: weights.clone()]), 4)
    assert [torch.equal(a.location, b.location) for a, b in zip(free, again, strict=True)] == [True] * 4


def test_the_global_generator_is_left_alone():
    plain = model(Multinoulli(at_test="sample"))
    before = torch.get_rng_state()
    steps(changing(plain, 5, [at(1, onto(9))]))
    assert torch.equal(torch.get_rng_state(), before)
    with seeded(3, torch.device("cpu")):
        first = torch.rand(2)
    with seeded(3, torch.device("cpu")):
        assert torch.equal(torch.rand(2), first)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_decoder_without_attention_is_refused():
    plain = model()
    plain.decoder = torch.nn.Linear(1, 1)
    with pytest.raises(UserError, match="no attention mechanism"):
        changing(plain, 0)
