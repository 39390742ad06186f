"""Exchanging the maps of two words, on a model whose reading is known."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import planted
from helpers.planted import caption_of, log_p, photo

from caption.analysis.faithfulness.interchange import interchange
from caption.errors import UserError

ON_ONE, ON_TWO, ON_THREE = ([float(region == place) for region in range(6)] for place in (1, 2, 3))
NUMBERS = ("one", "two", "three")


def test_a_word_that_is_read_where_it_looks_follows_the_look():
    swapped = interchange(planted.captioner(ON_ONE, ON_TWO), photo(), NUMBERS, [caption_of("one two")])
    assert swapped.words == ("one", "two")
    assert swapped.others.tolist() == ["two", "one"]
    assert swapped.follows["its own"].tolist() == [0, 0]
    assert swapped.stays["its own"].tolist() == [1, 1]
    assert swapped.follows["of the other"].tolist() == [1, 1]
    assert swapped.stays["of the other"].tolist() == [0, 0]
    lead = log_p(1, ON_ONE) - log_p(2, ON_ONE)
    assert swapped.leads["its own"] == pytest.approx([-lead, -lead], abs=1e-5)
    assert swapped.leads["of the other"] == pytest.approx([lead, lead], abs=1e-5)
    assert repr(swapped).startswith("Interchange(2 words, means its own: 0.00, of the other: 1.00")
    assert str(swapped).splitlines()[1].startswith("one → two ")


def test_the_permuted_map_lies_on_the_others_place_by_chance_only():
    model = planted.captioner(ON_ONE, ON_TWO)
    swapped = interchange(model, photo(), NUMBERS, [caption_of("one two")], draws=3000)
    for measured in (swapped.follows, swapped.stays):
        assert measured["of the other, permuted"] == pytest.approx([1 / 6, 1 / 6], abs=0.03)


def test_pairs_are_of_different_words_of_one_caption_and_one_kind():
    model = planted.captioner(ON_ONE, ON_TWO, ON_THREE)
    captions = [caption_of(text) for text in ("four two", "one two three", "", "two two one")]
    swapped = interchange(model, [photo(turn) for turn in range(4)], NUMBERS, captions, batch_size=3)
    said = list(zip(swapped.images.tolist(), swapped.words, swapped.others.tolist(), strict=True))
    assert sorted(said) == [
        (1, "one", "three"), (1, "one", "two"), (1, "three", "one"), (1, "three", "two"), (1, "two", "one"),
        (1, "two", "three"), (3, "one", "two"), (3, "one", "two"), (3, "two", "one"), (3, "two", "one"),
    ]  # fmt: skip
    # The second photo rotates all maps by one.
    entry = said.index((1, "one", "two"))
    assert swapped.leads["of the other"][entry] == pytest.approx(
        log_p(2, np.roll(ON_TWO, 1)) - log_p(1, np.roll(ON_TWO, 1)), abs=1e-5
    )


def test_captions_without_a_pair_are_refused():
    captions = [caption_of("one"), caption_of("four five")]
    with pytest.raises(UserError, match="no caption has two of one, two, three: name words"):
        interchange(planted.captioner(ON_ONE), [photo(), photo()], NUMBERS, captions)
