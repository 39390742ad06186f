"""One word with the attention forced to every region in turn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers import planted, tiny_captioner
from helpers.planted import COLS, ROWS

from caption.analysis.interventions import Force, force_everywhere, intervene
from caption.attention import MultiHeadAttention, Multinoulli
from caption.captioner import Captioner
from caption.decoders import ShowAttendAndTellDecoder
from caption.search import BeamSearch, Greedy

PHOTO = tiny_captioner.photo()


def test_a_word_that_depends_on_its_region_follows_the_attention():
    model = planted.captioner([0.1, 0.6, 0.1, 0.1, 0.1, 0.0], [0.0, 0.1, 0.8, 0.1, 0.0, 0.0])
    result = force_everywhere(model, planted.photo(), "two", Greedy(2))
    assert result.step == 1
    assert np.shape(result.words) == result.probability.shape == (ROWS, COLS)
    assert len({word for row in result.words for word in row}) == ROWS * COLS
    assert result.words[0][2] == "two"
    assert result.probability.argmax() == 2


def heads() -> Captioner:
    return tiny_captioner.captioner(
        decoder=ShowAttendAndTellDecoder(MultiHeadAttention(heads=2, size=4), 6, 7)
    )


@pytest.mark.parametrize("make", [tiny_captioner.captioner, heads])
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


def test_hard_attention_reads_its_expectation_and_keeps_its_setting():
    model = tiny_captioner.captioner(alignment=Multinoulli())
    result = force_everywhere(model, PHOTO, 0)
    again = force_everywhere(model, PHOTO, 0)
    assert np.array_equal(result.probability, again.probability)
    assert np.isfinite(result.probability).all()


def test_the_end_token_has_a_step_too():
    model = tiny_captioner.captioner()
    with torch.no_grad():
        model.decoder.readout.to_words.bias[2] = -0.5  # so that the caption ends
    search = BeamSearch(3, max_length=8, length_normalization=1.0)
    result = force_everywhere(model, PHOTO, "<end>", search)
    assert result.step == len(result.caption.words)
    forced = intervene(model, PHOTO, Force((3, 5), at="<end>"), search=search)
    under = np.exp(forced.original_log_probs.under[-1])
    assert result.probability[3, 5] == pytest.approx(under, rel=1e-4)
