"""The explorer's engine: a chain of changes, and how little is computed for each."""

import json
import re

import numpy as np
import pytest
import torch
from helpers import mechanisms
from helpers.tiny_captioner import captioner, photo
from helpers.tiny_lens import tiny_lens
from PIL import Image

from caption.analysis import intervene
from caption.analysis.explorer import Explorer
from caption.analysis.explorer.service import Service
from caption.analysis.interventions import NO_EDITS, Erase, Force, Mask, Move
from caption.analysis.interventions.encoded_photo import log_probs_of
from caption.attention import Multinoulli
from caption.core.errors import UserError
from caption.search import Greedy


@pytest.fixture
def model():
    return captioner()


@pytest.fixture
def explorer(model):
    return Explorer(model, photo(), name="noise.png")


FORCE = {"kind": "force", "steps": [2], "cells": [[0, 0], [7, 7]]}
LATER = {"kind": "force", "steps": [4], "cells": [[3, 3]]}
ERASE = {"kind": "erase", "cells": [[0, 0], [0, 1]]}


def count_steps(explorer, monkeypatch):
    """The steps of the decoder that are computed from now on, as (hypotheses) each."""
    taken, step = [], explorer.photo.model.decoder.step

    def counted(state, words):
        taken.append(words.shape[1])
        return step(state, words)

    monkeypatch.setattr(explorer.photo.model.decoder, "step", counted)
    return taken


@pytest.mark.parametrize(
    "change", [Force((0, 0), at=2), Mask((1, 1), at=[1, 2]), Erase((2, 2)), Mask((1, 1))]
)
def test_one_change_gives_what_intervene_gives(model, explorer, change):
    expected, found = intervene(model, photo(), change), explorer.apply(change).change
    assert found.changed.words == expected.changed.words
    np.testing.assert_allclose(found.changed.weights, expected.changed.weights, atol=1e-6)
    for one, other in (
        (found.original_log_probs, expected.original_log_probs),
        (found.changed_log_probs, expected.changed_log_probs),
    ):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.under, other.under, atol=1e-5)
        np.testing.assert_allclose(one.without, other.without, atol=1e-5)
    assert found.steps == expected.steps


def test_a_word_may_look_where_another_one_did_with_signed_weights():
    model = mechanisms.captioner(mechanisms.decoder("de_attention"), scale=4.0, end=-6.0, seed=4).float()
    explorer = Explorer(model, photo())
    assert (explorer.original.weights < 0).any()
    word = "sits"
    expected = intervene(model, photo(), Force(word, at=0))
    explorer.force(word, at=0)
    assert explorer.caption.words == expected.changed.words
    np.testing.assert_allclose(explorer.caption.weights, expected.changed.weights, atol=1e-6)
    # A page goes on from the change.
    (request,) = explorer.record()["change"]["requests"]
    requests = explorer.answer({"changes": [request, {"kind": "mask", "steps": [1], "cells": [[0, 0]]}]})
    assert len(requests["change"]["requests"]) == 2
    assert explorer.changes[0].where == word


def test_a_move_is_refused(explorer):
    with pytest.raises(UserError, match="Move is not among an explorer's changes: take intervene"):
        explorer.apply(Move(right=1))


def test_the_kept_words_are_not_computed_again(explorer, monkeypatch):
    words = len(explorer.original.words)
    encoded = []
    monkeypatch.setattr(explorer.photo.model.encoder, "forward", lambda *given: encoded.append(given))
    taken = count_steps(explorer, monkeypatch)
    explorer.force((0, 0), at=words - 1)
    assert explorer.caption.words[: words - 1] == explorer.original.words[: words - 1]
    # The search goes on from the changed word, and teacher forcing keeps its steps for the next change.
    tokens = len(explorer.caption.words) + explorer.caption.finished
    assert taken.count(1) <= tokens - (words - 1) + 1
    assert len(taken) <= 8 - (words - 1) + tokens - (words - 1)
    assert not encoded
    del taken[:]
    explorer.undo()
    assert explorer.caption is explorer.original
    assert not taken


@pytest.mark.parametrize(
    ("alignment", "at"), [(None, 0), (None, 2), (None, 6), (Multinoulli(at_test="sample"), 2)]
)
def test_what_two_captions_have_in_common_is_not_computed_again_for_their_probabilities(
    monkeypatch, alignment, at
):
    explorer = Explorer(captioner(alignment=alignment), photo())
    explorer.force((0, 0), at=min(at, len(explorer.original.words) - 1))
    taken = count_steps(explorer, monkeypatch)
    change = explorer.change
    one, other = change.original_log_probs, change.changed_log_probs
    alike = change.first_difference
    assert len(taken) == (0 if alike is None else len(one.tokens) + len(other.tokens) - 2 * (alike + 1))
    edits = explorer._edited.edits
    for found, caption, under in [
        (one.without, explorer.original, NO_EDITS),
        (one.under, explorer.original, edits),
        (other.without, explorer.caption, NO_EDITS),
        (other.under, explorer.caption, edits),
    ]:
        assert np.array_equal(found, log_probs_of(explorer.photo.follow(caption, under)))


def test_a_second_change_refers_to_the_changed_caption_and_keeps_its_beginning(explorer):
    explorer.answer({"changes": [FORCE]})
    first = explorer.caption
    step = len(first.words) - 1
    explorer.force((3, 3), at=step)
    assert explorer.caption.words[:step] == first.words[:step]
    onto = np.zeros((8, 8))
    onto[0, 0] = onto[7, 7] = 0.5
    np.testing.assert_allclose(explorer.caption.weights[2], onto, atol=1e-6)
    np.testing.assert_allclose(explorer.caption.weights[step][3, 3], 1, atol=1e-6)
    assert explorer.change.steps == (2, step)
    assert explorer.change.original is explorer.original
    # The same as all steps anew, under both edits.
    again = explorer.photo.follow(explorer.caption, explorer._edited.edits)
    for one, other in zip(again, explorer._edited.steps, strict=True):
        torch.testing.assert_close(one.log_probs, other.log_probs)


def test_requests_and_python_speak_of_the_same_changes(model, explorer):
    answered = explorer.answer({"changes": [FORCE, ERASE]})
    json.dumps(answered, allow_nan=False)
    assert answered["change"]["requests"] == [FORCE, ERASE]
    place = np.zeros((8, 8))
    place[0, 0] = place[7, 7] = 1
    other = Explorer(model, photo()).force(place, at=2).erase((0, 0))
    assert other.record()["change"]["requests"][0] == FORCE
    assert isinstance(explorer.changes[1], Erase)
    kept = explorer._applied[0].result
    explorer.answer({"changes": [FORCE]})
    assert explorer._applied[0].result is kept
    assert explorer.answer({"changes": []})["change"]["after"] is None


def test_another_search_begins_anew(explorer):
    explorer.answer({"changes": [FORCE]})
    explorer.answer({"changes": [], "search": {"kind": "greedy"}})
    assert explorer.changes == ()
    greedy = explorer.photo.caption(search=Greedy(max_length=8)).caption
    assert explorer.caption.words == greedy.words
    texts = [
        explorer.answer({"search": {"kind": "sample", "seed": seed}})["captions"][0]["text"]
        for seed in (1, 2, 3, 1)
    ]
    assert texts[0] == texts[-1]
    assert len(set(texts)) > 1
    beam = explorer.answer({"search": {"kind": "beam", "beam_size": 4}})
    assert len(beam["captions"]) == 3


def test_a_word_looks_where_the_lens_sees_a_thing(model):
    lens = tiny_lens()
    model.lens = lens
    explorer = Explorer(model, photo())
    where = lens.map_of(explorer.photo.encoded[0], "saxophone")[0].numpy()
    explorer.look_at("sax", at=2)
    np.testing.assert_allclose(explorer.caption.weights[2], where / where.sum(), atol=1e-6)
    assert explorer.caption.lens.words[2][0].noun == "saxophone"
    request = {"kind": "force", "steps": [2], "thing": "sax"}
    answered = explorer.answer({"changes": [request]})
    assert answered["change"]["requests"] == [request]
    json.dumps(answered, allow_nan=False)
    with pytest.raises(UserError, match="'zebra'"):
        explorer.look_at("zebra", at=2)
    with pytest.raises(UserError, match="cup"):
        explorer.look_at("cup", at=2)
    assert explorer.answer({"changes": [request]})["change"]["requests"] == [request]


def test_what_the_lens_reads_follows_the_changes(model):
    model.lens = tiny_lens()
    explorer = Explorer(model, photo())
    seen = explorer.original.lens.regions
    assert [len(row) for row in seen] == [8] * 8
    row, col = next((row, col) for row in range(8) for col in range(8) if seen[row][col].noun == "boat")
    assert explorer.original.lens.words[1][0].noun != "boat"
    explorer.force((row, col), at=1)
    assert explorer.caption.lens.words[1][0] == pytest.approx(seen[row][col])
    assert explorer.caption.lens.regions == seen


def test_a_word_that_looks_at_one_cell_leaves_the_colours_of_the_others(explorer):
    before = explorer.record()["captions"][0]
    highest = float(explorer.original.weights.max())
    assert before["drawn"]["high"] == before["high"] == highest < 0.5
    after = explorer.force((0, 0), at=2).record()["captions"][0]
    assert after["high"] == 1  # its weights stay readable
    assert after["drawn"] == before["drawn"]
    assert after["blurred"] == before["blurred"]
    highs = re.findall(r'"drawn":\{"low":0.0,"high":([0-9.]+)', explorer.to_html())
    assert {float(high) for high in highs} == {highest}


def test_a_large_photo_has_the_caption_that_the_command_prints(model, tmp_path):
    path = tmp_path / "large.jpg"
    photo().resize((1600, 1600), Image.Resampling.BICUBIC).save(path, quality=95)
    described = model.describe(path)
    service = Service({"one": model, "two": model})
    shown = service.add(path.read_bytes(), "large.jpg")["photos"]
    for record in shown:
        assert record["captions"][0]["text"] == str(described)
        assert record["captions"][0]["log_prob"] == pytest.approx(described.log_prob, abs=1e-6)
    assert Explorer(model, path).original.log_prob == pytest.approx(described.log_prob, abs=1e-6)


WRONG = {
    "changes[0].kind is push: it must be force, mask or erase": [{"kind": "push"}],
    "changes[0] lacks 'kind', force, mask or erase": [{}],
    "it must be a list of at most 100": [FORCE] * 101,
    "no cell (8, 0)": [{"kind": "erase", "cells": [[8, 0]]}],
    "one place: cells or a map": [{"kind": "erase"}],
    "8 x 8 numbers": [{"kind": "force", "steps": [0], "map": [[1]]}],
    "not negative": [{"kind": "force", "steps": [0], "map": [[float("nan")] * 8] * 8}],
    "has no step 40": [{"kind": "force", "steps": [40], "cells": [[0, 0]]}],
    "it must be the number of a word": [{"kind": "force", "steps": [True], "cells": [[0, 0]]}],
    "nothing to look at": [{"kind": "erase", "cells": [[row, col] for row in range(8) for col in range(8)]}],
    "changes[0] has no 'box': it has kind, steps,": [{"kind": "erase", "cells": [[0, 0]], "box": 1}],
    "has no lens": [{"kind": "force", "steps": [0], "thing": "dog"}],
    "it must be a noun": [{"kind": "force", "steps": [0], "thing": 3}],
    "kind 'mask' has no 'thing'": [{"kind": "mask", "steps": [0], "thing": "dog"}],
    "changes[0].cells[0][0] is 0.5: it must be the number of a row": [{"kind": "erase", "cells": [[0.5, 0]]}],
}


def test_a_wrong_request_is_refused_with_its_reason_and_the_next_one_answered(explorer):
    for reason, changes in WRONG.items():
        with pytest.raises(UserError, match=re.escape(reason)):
            explorer.answer({"changes": changes})
        assert explorer.answer({"changes": [LATER]})["change"]["requests"] == [LATER]


def test_a_wrong_search_is_refused(explorer):
    before = explorer.caption
    for search in ("greedy", {"kind": "beam", "beam_size": 500}, {"kind": "sample", "seed": "x"}):
        with pytest.raises(UserError):
            explorer.answer({"search": search})
    assert explorer.caption is before


def test_work_that_is_stopped_leaves_the_explorer_as_it_was(model):
    def watch():
        if stopping:
            raise KeyboardInterrupt

    stopping = False
    explorer = Explorer(model, photo(), watch=watch)
    explorer.force((0, 0), at=1)
    said = explorer.caption
    stopping = True
    with pytest.raises(KeyboardInterrupt):
        explorer.force((5, 5), at=2)
    assert explorer.caption is said
    assert len(explorer.changes) == 1
