"""Captions under edited attention, with their log-probabilities: with planted dependences, and in searches of a real
decoder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from helpers import planted, tiny_captioner
from helpers.planted import COLS, ROWS, log_p

from caption.analysis.interventions import (
    Erase,
    Force,
    Intervention,
    LogProbs,
    Mask,
    Move,
    force_everywhere,
    intervene,
)
from caption.analysis.interventions.edited_attention import mask_views
from caption.attention import Alignment, MultiHeadAttention, Multinoulli, Softmax
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.decoders import ShowAttendAndTellDecoder
from caption.search import BeamSearch, Greedy, Sampling, Search

ON_ONE = [0.1, 0.6, 0.1, 0.1, 0.1, 0.0]
ON_TWO = [0.0, 0.1, 0.8, 0.1, 0.0, 0.0]
ON_FIVE = [0.0, 0.2, 0.1, 0.0, 0.1, 0.6]


def known(*changes: Any) -> Intervention:
    """A model that says "one two five", each word depending on its region."""
    return intervene(planted.captioner(ON_ONE, ON_TWO, ON_FIVE), planted.photo(), *changes, search=Greedy(3))


def tiny(alignment: Alignment | None = None, **parts: Any) -> Captioner:
    return tiny_captioner.captioner(search=BeamSearch(3, max_length=8), alignment=alignment, **parts)


PHOTO = tiny_captioner.photo()


# -- a model with known answers --------------------------------------------------------------------------------


def test_a_word_that_is_made_to_look_elsewhere_is_another():
    result = known(Force((1, 0), at="two"))
    assert result.original.words == ["one", "two", "five"]
    assert result.changed.words == ["one", "three", "five"]
    assert result.changed.weights[1].tolist() == [[0, 0, 0], [1, 0, 0]]
    assert result.first_difference == 1
    assert result.steps == (1,)
    three = [0, 0, 0, 1.0, 0, 0]
    said = [log_p(1, ON_ONE), log_p(2, ON_TWO), log_p(5, ON_FIVE)]
    now = [log_p(1, ON_ONE), log_p(3, three), log_p(5, ON_FIVE)]
    assert result.original_log_probs.tokens == ("one", "two", "five")
    assert result.original_log_probs.without == pytest.approx(said, abs=1e-5)
    assert result.original_log_probs.under == pytest.approx([said[0], log_p(2, three), said[2]], abs=1e-5)
    assert result.original_log_probs.falls == pytest.approx([0, said[1] - log_p(2, three), 0], abs=1e-5)
    assert result.changed_log_probs.tokens == ("one", "three", "five")
    assert result.changed_log_probs.under == pytest.approx(now, abs=1e-5)
    assert result.changed_log_probs.without == pytest.approx([said[0], log_p(3, ON_TWO), said[2]], abs=1e-5)
    assert result.original.log_prob == pytest.approx(sum(said), abs=1e-5)
    assert result.changed.log_prob == pytest.approx(sum(now), abs=1e-5)
    assert f"changed   one three five\n          log p {sum(now):.2f}, without the changes" in str(result)
    assert str(result).endswith("they part at step 1: 'two' becomes 'three'")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ([Move(right=-1, at=["two", "one"])], "zero one five"),
        ([Mask((1, 2), at=2)], "one two one"),
        ([Force(np.array(ON_FIVE).reshape(ROWS, COLS))], "five five five"),
        ([Force((0, 0, 2.5, 4), at=[1, 2])], "one zero zero"),
        # Several hold together, and in order.
        ([Force("five", at="one"), Force("one", at="five")], "five two one"),
        ([Force((0, 0), at=1), Move(right=1, at=1)], "one one five"),
        ([Move(right=1, at=1), Force((0, 0), at=1)], "one zero five"),
    ],
)
def test_changes_have_the_words_that_follow_from_them(changes: list[Any], words: str):
    assert known(*changes).changed.text == words


def test_captions_may_part_where_one_of_them_stops():
    same = known(Move())
    for tokens, others, first_difference, verdict in (
        (("one", "two"), ("one",), 1, "'two' becomes nothing"),
        ((), ("one",), 0, "nothing becomes 'one'"),
        (("one", "two"), ("one", "two"), None, "the same caption"),
    ):
        log_probs = [LogProbs(each, np.zeros(len(each)), np.zeros(len(each))) for each in (tokens, others)]
        result = Intervention((Move(),), same.original, same.changed, *log_probs, steps=())
        assert result.first_difference == first_difference
        assert result.verdict.endswith(verdict)


# -- of a real decoder, through every search -------------------------------------------------------------------

SEARCHES = [
    Greedy(8),
    BeamSearch(3, max_length=8),
    BeamSearch(5, max_length=8, length_normalization=0.7, candidates=3),
    Sampling(max_length=8, samples=3, seed=1),
    Sampling(max_length=8),
]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("how", ["soft", "expectation", "argmax"])
def test_both_captions_have_the_words_and_log_probs_of_the_search(search: Search, how: Any):
    model = tiny(Softmax() if how == "soft" else Multinoulli(at_test=how))
    result = intervene(model, PHOTO, Force((3, 4), at=1), search=search)
    for caption, said in (
        (result.original, result.original_log_probs.without),
        (result.changed, result.changed_log_probs.under),
    ):
        assert said.sum() == pytest.approx(caption.log_prob, abs=1e-4)
        assert said[: len(caption.words)] == pytest.approx(caption.word_log_probs, abs=1e-4)
    hypotheses = [result.changed, *result.changed.alternatives]
    assert len(hypotheses) == (3 if search in SEARCHES[2:4] else 1)
    for caption in hypotheses:
        at_place = np.arange(len(caption.words)) == 1
        assert ((caption.weights[:, 3, 4] == 1) == at_place).all()
    assert (result.changed.maps.locations is not None) == (how == "argmax")
    assert result.original.words[:1] == result.changed.words[:1]
    before = result.original_log_probs
    assert before.under[0] == pytest.approx(before.without[0], abs=1e-5)
    assert before.under[1] != before.without[1]
    if search == SEARCHES[1]:
        own = model.describe(PHOTO, search)
        assert result.original.words == own.words
        assert (result.original.weights == own.weights).all()


def test_the_step_of_the_end_is_one_like_others():
    model = tiny()
    model.search = BeamSearch(3, max_length=8, length_normalization=1.0)
    with torch.no_grad():
        model.decoder.readout.to_words.bias[2] = -0.5  # captions end early
    own = model.describe(PHOTO)
    assert own.finished
    assert 1 <= len(own.words) < 7
    last = len(own.words)
    result = intervene(model, PHOTO, Force((3, 4), at="<end>"))
    log_probs = result.original_log_probs
    assert log_probs.tokens == (*own.words, "<end>")
    assert log_probs.falls[:-1] == pytest.approx(np.zeros(last), abs=1e-6)
    assert abs(log_probs.falls[-1]) > 1e-4
    assert result.changed.words[:last] == own.words


def test_erased_regions_are_as_if_they_had_never_been():
    model = tiny()
    gone = np.zeros((8, 8), dtype=bool)
    gone[:, :3] = gone[5] = True
    left = gone & (np.arange(8) < 3)
    result = intervene(model, PHOTO, Erase(left), Erase(gone & ~left))
    (view,) = model.encode([PHOTO])
    left_over = view._replace(vectors=view.vectors[:, ~gone.flatten()], grid=(1, int((~gone).sum())))
    memory = model.decoder.project((left_over,))
    with torch.no_grad():
        found = model.search(model.decoder.step, model.decoder.start(memory), 1, 1, 2, (0, 1, 3))
    length = int(found.lengths[0, 0])
    assert model.vocabulary.decode(found.words[0, 0, :length].tolist()) == result.changed.words
    assert float(found.log_probs[0, 0]) == pytest.approx(result.changed.log_prob, abs=1e-4)
    assert (result.changed.weights[:, gone] == 0).all()
    assert result.changed.weights[:, ~gone] == pytest.approx(found.trace.weights[0, 0, :length], abs=1e-5)


def test_erased_places_stay_erased_under_other_edits():
    everywhere = np.ones((8, 8))
    result = intervene(tiny(), PHOTO, Erase((0, 0)), Force(everywhere, at=1), Move(down=-1, at=2))
    assert (result.changed.weights[:, 0, 0] == 0).all()
    assert result.changed.weights[1, 0, 1] == pytest.approx(1 / 63)
    with pytest.raises(UserError, match="nothing left to read"):
        intervene(tiny(), PHOTO, Erase((0, 0)), Force((0, 0), at=1))


def test_regions_that_were_masked_before_stay_masked():
    visible, real = torch.arange(64) > 3, torch.arange(64) < 60
    (view,) = tiny().encode([PHOTO])
    (left,) = mask_views((view._replace(mask=real[None]),), {(8, 8): visible})
    assert torch.equal(left.mask[0], visible & real)


def test_attention_that_samples_draws_alike_for_both():
    """If it is forced to read the regions that it would have sampled, the caption is unchanged."""
    model, search = tiny(Multinoulli(at_test="sample")), Greedy(6)
    drawn = set()
    for seed in range(3):
        result = intervene(model, PHOTO, Force((3, 4), at=2), search=search, seed=seed)
        free, forced = (caption.maps.locations.tolist() for caption in (result.original, result.changed))
        assert free[:2] == forced[:2]
        assert forced[2] == [3, 4]
        assert len({*map(tuple, free)}) > 1, "each step has its own random numbers"
        drawn.add(str(free))
        again = intervene(model, PHOTO, Move(), search=search, seed=seed)  # moves nothing
        assert again.original.maps.locations.tolist() == again.changed.maps.locations.tolist() == free
    assert len(drawn) == 3


def test_a_search_that_samples_draws_alike_for_both():
    texts = set()
    for seed in range(4):
        result = intervene(tiny(), PHOTO, Move(), search=Sampling(max_length=8), seed=seed)
        assert result.first_difference is None
        texts.add(result.original.text)
    assert len(texts) > 1


# -- one word with the attention forced to every region in turn ----------------------------------------------------


def test_a_word_that_depends_on_its_region_follows_the_attention():
    model = planted.captioner(ON_ONE, ON_TWO)
    result = force_everywhere(model, planted.photo(), "two", Greedy(2))
    assert result.step == 1
    assert result.words == [["zero", "one", "two"], ["three", "four", "five"]]
    assert result.probability.shape == (ROWS, COLS)
    assert result.probability.argmax() == 2
    assert len(result.plot(style="paper").axes) == 2
    result.caption.image = None
    with pytest.raises(ValueError, match="no photo"):
        result.plot()


def heads() -> Captioner:
    return tiny(decoder=ShowAttendAndTellDecoder(MultiHeadAttention(heads=2, size=4), 6, 7))


@pytest.mark.parametrize("make", [tiny, heads])
def test_each_region_is_what_an_intervention_there_gives(make: Callable[[], Captioner]):
    model = make()
    result = force_everywhere(model, PHOTO, 2)
    for row, col in ((0, 0), (3, 5), (7, 7)):
        forced = intervene(model, PHOTO, Force((row, col), at=2), search=Greedy(8))
        assert forced.original.words[:2] == result.caption.words[:2]
        assert forced.changed_log_probs.tokens[2] in (result.words[row][col], "<end>")
        if forced.original.words == result.caption.words:
            under = np.exp(forced.original_log_probs.under[2])
            assert result.probability[row, col] == pytest.approx(under, rel=1e-4)


# -- the captioner is unchanged --------------------------------------------------------------------------------


def snapshot(model: Captioner) -> Any:
    parts = [
        (id(part), part.training, [*part._forward_hooks], [*part._forward_pre_hooks])
        for part in model.modules()
    ]
    return parts, torch.cat([tensor.flatten().float() for tensor in model.state_dict().values()])


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (Force((0, 0), at=1), None),
        (Erase((0, 0)), None),
        (Force((9, 9)), "no cell"),
        (Mask(np.ones((8, 8))), "all 64 regions"),
    ],
)
def test_the_captioner_and_the_generator_are_as_before_also_after_an_error(
    change: Any, error: str | None, training: bool
):
    model = tiny(Multinoulli(at_test="sample"))
    model.train(training)
    before, chance = snapshot(model), torch.get_rng_state()
    with nullcontext() if error is None else pytest.raises(ValueError, match=error):
        intervene(model, PHOTO, change)
    after = snapshot(model)
    assert after[0] == before[0]
    assert torch.equal(after[1], before[1])
    assert torch.equal(torch.get_rng_state(), chance)


def test_invalid_changes_are_named():
    with pytest.raises(ValueError, match="nothing to change"):
        intervene(tiny(), PHOTO)
    with pytest.raises(ValueError, match="all 64 regions would be hidden"):
        intervene(tiny(), PHOTO, Erase((0, 0, 80, 20)), Erase((0, 20, 80, 40)))
