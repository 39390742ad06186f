"""Words under permuted weights and under those of other words, on a model whose reading is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers import planted
from helpers.planted import REGIONS, caption_of, log_p, photo

from caption.analysis.faithfulness.interchange import interchange
from caption.analysis.faithfulness.permutation import permute
from caption.errors import UserError

ON_ONE, ON_TWO, ON_THREE = np.eye(REGIONS)[1:4].tolist()
FIRST, SECOND = [0.4, 0.6, 0, 0, 0, 0], [0, 0, 0.7, 0.3, 0, 0]


def test_even_weights_by_hand():
    swapped = permute(planted.captioner(ON_TWO), photo(), [caption_of("two")])
    even = [1 / REGIONS] * REGIONS
    assert swapped.log_probs == pytest.approx([log_p(2, ON_TWO)], abs=1e-6)
    assert swapped.falls["uniform"] == pytest.approx([log_p(2, ON_TWO) - log_p(2, even)], abs=1e-5)
    # After the change, the six words have equal probabilities, and so do the four special tokens.
    before = [math.exp(log_p(word, ON_TWO)) for word in range(6)] + [math.exp(log_p(0, ON_TWO))] * 4
    special = math.exp(log_p(0, even) - planted.STRENGTH / REGIONS)
    after = [math.exp(log_p(0, even))] * 6 + [special] * 4
    distance = sum(abs(a - b) for a, b in zip(before, after, strict=True)) / 2
    assert swapped.distances["uniform"] == pytest.approx([distance], abs=1e-5)


def test_a_permutation_keeps_the_weights_and_moves_them():
    """The only nonzero weight stays in its region with probability 1/6."""
    swapped = permute(planted.captioner(ON_TWO), photo(), [caption_of("two")], draws=3000)
    lost = log_p(2, ON_TWO) - log_p(2, [1, 0, 0, 0, 0, 0])
    assert swapped.falls["permuted"][0] == pytest.approx(lost * 5 / 6, abs=0.2)
    assert swapped.changed["permuted"][0] == pytest.approx(5 / 6, abs=0.03)


def test_the_map_of_another_word_of_the_caption():
    swapped = permute(planted.captioner(FIRST, SECOND), photo(), [caption_of("one three")])
    assert swapped.falls["other word"] == pytest.approx(
        [log_p(1, FIRST) - log_p(1, SECOND), log_p(3, SECOND) - log_p(3, FIRST)], abs=1e-5
    )
    # "one" gives way to "two"; "three" was not the likeliest before, and is not now.
    assert swapped.changed["other word"].tolist() == [1, 1]


def test_the_map_of_another_image_at_the_same_step_or_its_last():
    photos = [photo(0), photo(3), photo(1)]
    captions = [caption_of(text) for text in ("one three", "", "two")]
    swapped = permute(planted.captioner(FIRST, SECOND), photos, captions)
    assert swapped.images.tolist() == [0, 2, 0]
    assert swapped.words == ("one", "two", "three")
    turned = np.roll(FIRST, 1)  # the third photo's only map; the second has no further map
    expected = [
        log_p(1, FIRST) - log_p(1, turned),
        log_p(2, turned) - log_p(2, FIRST),
        log_p(3, SECOND) - log_p(3, turned),
    ]
    assert swapped.falls["other image"] == pytest.approx(expected, abs=1e-5)


def test_measures_without_a_partner_are_nan():
    swapped = permute(planted.captioner(FIRST), photo(), [caption_of("one")])
    for measured in (swapped.falls, swapped.distances, swapped.changed):
        assert np.isnan(measured["other word"]).all()
        assert np.isnan(measured["other image"]).all()
        assert np.isfinite(measured["permuted"]).all()
    # Maps of photos in other batches are not used.
    apart = permute(planted.captioner(FIRST), [photo(), photo(1)], [caption_of("one")] * 2, batch_size=1)
    assert np.isnan(apart.falls["other image"]).all()
    assert apart.images.tolist() == [0, 1]


# -- two words exchange their maps ---------------------------------------------------------------------------------

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
