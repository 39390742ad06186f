"""Rules of words: a word said twice, a place that acts, a person."""

from __future__ import annotations

import pytest

from caption.text.sense import is_content_word, is_nonsense, is_repetitive, names_person, place_acts
from caption.text.tokenizer import get_tokenizer


def of(rule: object, sentences: str) -> list[str]:
    """The lines of which a rule is true."""
    tokenize = get_tokenizer("ptb")
    assert callable(rule)
    return [line.strip() for line in sentences.strip().splitlines() if rule(tokenize(line))]


SENSE = """
    A man and a man are on a bus.
    a small white dog next to a small white cat
    some people with some hats
    three cups near three bowls
    a man and another with other people
    a woman in a kitchen is standing
    A man in front of a city street standing on a skateboard.
    a couch sits in the corner of a living room
    a tall building stands by the road
    there is a clock in a city that stands
    sitting on the beach
    is standing
"""


@pytest.mark.parametrize(
    ("rule", "sentences"),
    [
        (is_repetitive, "a kitchen with a sink in the Kitchen."),
        (is_repetitive, "a bus is driving down the the street"),
        (is_repetitive, "a a bed"),
        (is_repetitive, "a tennis player on a tennis court"),
        (is_repetitive, "a man sitting next to a dog sitting on a bed"),
        (place_acts, "A kitchen is sitting in front of a stove."),
        (place_acts, "a city street is standing in the road"),
        (place_acts, "two large rooms are standing"),
        (place_acts, "there is a living room sitting here"),
        (place_acts, "bathroom sits on a toilet"),
        (place_acts, "the beach walks"),
    ],
)
def test_nonsense_is_found_by_one_rule(rule: object, sentences: str) -> None:
    assert of(rule, sentences) == of(is_nonsense, sentences) == [sentences]
    assert of(place_acts if rule is is_repetitive else is_repetitive, sentences) == []


def test_sentences_of_sense_are_not_nonsense() -> None:
    assert of(is_nonsense, SENSE) == []
    assert not is_nonsense([])


def test_content_words_have_four_letters_and_are_neither_function_words_nor_adjectives() -> None:
    words = "dog dogs Kitchen with yellow large standing don't <unk> t-shirt o'er three 's"
    assert [word for word in words.split() if is_content_word(word)] == [
        "dogs", "Kitchen", "standing", "don't", "t-shirt",
    ]  # fmt: skip


PERSONS = """
    A man is here.
    two women
    people at night
    a crowd at a game
    the couple kisses
    passengers board a train
    two policemen
    children 's toys
    a police officer on a horse
    a baby with a toy elephant
    a couple of people
"""
NOBODY = """
    a baby elephant
    an adult zebra with baby zebras
    a couple of dogs
    a passenger train
    commuter trains
    a family room
    a snowman
"""


def test_persons_are_named_in_singular_and_plural_but_not_by_words_that_describe_something_else() -> None:
    assert of(names_person, PERSONS + NOBODY) == [line.strip() for line in PERSONS.strip().splitlines()]
    assert not names_person([])
