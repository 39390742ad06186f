"""Agreement of two maps and of two models."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers import planted
from helpers.planted import caption_of, photo
from helpers.tiny_captioner import captioner
from helpers.tiny_captioner import photo as noise

from caption.analysis.agreement import Agreement, agree, compare_maps
from caption.core.errors import UserError
from caption.encoders import SmallCNN

P, Q = [0.5, 0.5, 0.0, 0.0], [0.0, 0.5, 0.25, 0.25]


def measured(p, q) -> dict[str, float]:
    return {name: float(value[0]) for name, value in compare_maps([p], [q]).items()}


def test_measures_by_hand():
    found = measured(P, Q)
    # The mean is (1/4, 1/2, 1/8, 1/8): KL is 1/2 bit from either side.
    assert found["divergence"] == pytest.approx(0.5)
    assert found["overlap"] == pytest.approx(0.5)
    # Ranks 3.5 3.5 1.5 1.5 and 1 4 2.5 2.5: deviations 1 1 −1 −1 and −1.5 1.5 0 0, which are orthogonal.
    assert found["rank correlation"] == pytest.approx(0)
    assert found["same cell"] == 0.5  # the second of two that tie
    # As Spearman has it, 1 − 6 Σ d² / (n (n² − 1)) where nothing ties: ranks 4 3 2 1 and 4 2 3 1.
    assert measured([0.4, 0.3, 0.2, 0.1], [0.9, 0.03, 0.06, 0.01])["rank correlation"] == pytest.approx(0.8)
    # Maps are taken as distributions, and either way round.
    assert measured([5, 5, 0, 0], Q) == pytest.approx(found)
    assert measured(Q, P) == pytest.approx(found)
    assert all(math.isnan(value) for value in measured([math.nan] * 4, Q).values())


def test_the_ends_of_the_scales():
    for p in (P, Q, [0.25] * 4):
        same = measured(p, p)
        assert (same["divergence"], same["overlap"], same["same cell"]) == pytest.approx((0, 1, 1))
    assert measured(P, P)["rank correlation"] == pytest.approx(1)
    assert measured([0.25] * 4, P)["rank correlation"] == 0  # a constant map has no ranks
    apart = measured([0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5])
    assert (apart["divergence"], apart["overlap"]) == pytest.approx((1, 0))


@pytest.mark.filterwarnings("error")
def test_ties_share_the_cell_and_a_map_without_weight_has_none():
    for place in range(4):
        assert measured([0.25] * 4, np.eye(4)[place])["same cell"] == 0.25  # also for the first
        assert all(math.isnan(value) for value in measured([0.0] * 4, np.eye(4)[place]).values())
    assert measured(P, [0.5, 0.3, 0.2, 0])["same cell"] == 0.5


def of_two(first: Any, second: Any, *more: Any) -> Agreement:
    return agree({"first": first, "second": second}, *more)["first", "second"]


def test_both_emit_the_first_models_words_and_are_compared_per_step():
    first = planted.captioner([1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0.5, 0.5, 0, 0])
    second = planted.captioner([1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 0, 0.5, 0.5, 0, 0])
    models = {"first": first, "second": second, "third": first}
    captions = [caption_of("zero one two"), caption_of("five")]
    found = agree(models, [photo(), photo(1)], captions)
    assert list(found) == [("first", "second"), ("first", "third"), ("second", "third")]
    assert found["first", "third"].measures["overlap"].tolist() == pytest.approx([1] * 4)
    agreement = found["first", "second"]
    for name, values in agreement.measures.items():
        assert found["second", "third"].measures[name] == pytest.approx(values)
    assert agreement.words == ("zero", "one", "two", "five")
    assert agreement.images.tolist() == [0, 0, 0, 1]
    assert agreement.measures["overlap"].tolist() == pytest.approx([1, 0, 1, 1])
    # With the next photo's only map, which is turned by one; then the first map of the next, which is the first.
    assert agreement.other_image["overlap"].tolist() == pytest.approx([0, 1, 0, 0])
    others = agreement.other_word["overlap"]
    assert others[0] == 0
    assert others[2] in (0, pytest.approx(0.5))
    assert np.isnan(others[3])
    assert agreement.only(["two"]).measures["overlap"].tolist() == pytest.approx([1])
    alone = of_two(first, first, photo(), [caption_of("one two")])
    assert np.isnan(alone.other_image["overlap"]).all()
    nothing = of_two(first, first, photo(), [caption_of("", np.zeros((0, 2, 3)))])
    assert nothing.measures["same cell"].shape == (0,)


def test_captions_of_one_photo_are_of_one_image():
    first = planted.captioner([1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0])
    second = planted.captioner([0.5, 0.5, 0, 0, 0, 0], [0, 0.5, 0.5, 0, 0, 0])
    photos, captions = [photo(turn) for turn in range(3)], [caption_of("zero one"), caption_of("two")]
    single = of_two(first, second, photos, [captions[0], captions[1], captions[0]])
    of_three = [one for one in photos for _ in range(3)]
    repeated = of_two(first, second, of_three, [captions[row // 3 % 2] for row in range(9)])
    assert repeated.images.tolist() == [0] * 6 + [3] * 3 + [6] * 6
    for own in (lambda found: found.measures, lambda found: found.other_image):
        for name, values in own(single).items():
            assert repeated.mean(own(repeated)[name]) == pytest.approx(single.mean(values))
    alone = of_two(first, second, photos[:1] * 2, captions)
    assert np.isnan(alone.other_image["overlap"]).all()


def test_grids_must_be_the_same():
    coarse = captioner(encoder=SmallCNN((4, 4, 6, 6)))
    with pytest.raises(UserError, match="different grids"):
        of_two(captioner(), coarse, [noise()])
