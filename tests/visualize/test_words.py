"""Which words are drawn: by name, by place, or those that name things."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.captions import caption_of

from caption.results.caption import Caption
from caption.visualize.words import naming_steps, steps_of

SENTENCES = {
    "a man in a black shirt is standing in front of a camera": "man shirt camera",
    "a black and white dog runs through a building": "dog building",
    "a little boy dressed in red": "boy",
    "a swimming pool": "pool",
    "we see a red circle to the right of a yellow triangle": "circle triangle",
}


def plain(sentence: str) -> Caption:
    """All maps are the same, but for a single one: no map tells which words are names."""
    words = sentence.split()
    weights = np.full((len(words), 2, 2), 0.25)
    return caption_of(words, weights)


@pytest.mark.parametrize("sentence", SENTENCES)
def test_words_that_name_things_are_found_by_their_place(sentence: str):
    caption = plain(sentence)
    named = SENTENCES[sentence].split()
    assert [caption.words[step] for step in naming_steps(caption, 100)] == named
    assert len(naming_steps(caption, 1)) == 1


def test_of_several_names_those_are_taken_whose_maps_differ_most():
    caption = plain("a man with a dog on the beach")
    caption.weights[4] = [[0.7, 0.1], [0.1, 0.1]]
    caption.weights[7] = [[0.1, 0.1], [0.1, 0.7]]
    caption.weights[0] = [[0, 1], [0, 0]]  # a function word is none
    assert naming_steps(caption, 2) == [4, 7]
    caption = plain("ein hund läuft")  # in another language the maps decide
    caption.weights[1] = [[1, 0], [0, 0]]
    assert naming_steps(caption, 1) == [1]


def test_words_and_places_stand_for_every_occurrence_in_the_captions_order():
    caption = plain("A dog and a cat and a dog")
    assert steps_of(caption, None) == list(range(8))
    assert steps_of(caption, "dog") == [1, 7]
    assert steps_of(caption, ["cat", "A"]) == [0, 3, 4, 6]
    assert steps_of(caption, [4, "CAT", 0]) == [0, 4]
    assert steps_of(caption, ["bird", 99, "cat"], strict=False) == [4]
    assert steps_of(caption_of([]), 3) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [("bird", "no word 'bird'"), ([8], "no word 8"), ([-1], "no word -1"), (0, "at least 1")],
)
def test_words_that_are_not_there_are_named(words, said):
    with pytest.raises(ValueError, match=said):
        steps_of(plain("a dog and a cat and a dog"), words)
