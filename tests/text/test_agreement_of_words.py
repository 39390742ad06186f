"""Articles, numbers and verbs in sentences as captions have them."""

from __future__ import annotations

import pytest

from caption.text.agreement import agrees, noun_letter, with_articles
from caption.text.nouns import imagenet_nouns


@pytest.mark.parametrize(
    ("sentence", "thing"),
    [
        ("a man is standing in front of an envelope", "envelope"),
        ("two dogs run", "dogs"),
        ("a black and white bird is playing with a guitar", "guitar"),
        ("a man wearing glasses", "glasses"),
        ("a table with bread on it", "bread"),
        ("a man and a cat are sitting on a couch", "cat"),
        ("the two dogs are looking at a hot dog", "hot dog"),
        ("sheep are in the grass", "sheep"),
        ("a large striped swimming fish", "fish"),
        ("his red sled", "sled"),
    ],
)
def test_sentences_that_agree(sentence: str, thing: str):
    assert agrees(_words(sentence, thing), thing)


@pytest.mark.parametrize(
    ("sentence", "thing"),
    [
        ("a man is sitting on a coffees wall", "coffees"),
        ("a man is sitting on a coffee wall", "coffee"),
        ("a man is sitting on a stone coffee", "coffee"),
        ("a black and glasses is running on the beach", "glasses"),
        ("a man with a glasses", "glasses"),
        ("a bread on a table", "bread"),
        ("two dog run", "dog"),
        ("a dogs", "dogs"),
        ("a man in front of envelope", "envelope"),
        ("a cat is playing in a red", "cat"),
        ("a the cat", "cat"),
        ("a man is sitting in a yellow and yellow cup", "cup"),
        ("a in a cat", "cat"),
        ("a cat is sitting on a cat", "cat"),
        ("a dog with a dog and a cat", "cat"),
    ],
)
def test_sentences_that_do_not(sentence: str, thing: str):
    assert not agrees(_words(sentence, thing), thing)


def _words(sentence: str, thing: str) -> list[str]:
    """With a thing of two words as one, as a vocabulary may have it."""
    return [word.replace("_", " ") for word in sentence.replace(thing, thing.replace(" ", "_")).split()]


def test_articles_follow_the_sound_of_the_next_word():
    phrases = "an orange, a dog, an hour, a uniform, an umbrella, a european, a one, an old, an suv"
    for phrase in phrases.split(", "):
        word = phrase.split()[1]
        assert with_articles(["a", word]) == with_articles(["an", word]) == phrase.split()
    assert with_articles(["in", "an", "old", "a"]) == ["in", "an", "old", "a"]


def test_numbers_of_the_nouns_of_a_lens():
    """Every noun of the table has the number that it is said in by itself, and its regular plural is one."""
    nouns = imagenet_nouns()
    many = {noun for noun in nouns.names if noun_letter(noun) == "p"}
    plurals = "binoculars, jeans, pajamas, mashed potatoes, parallel bars, sunglasses, swimming trunks"
    assert many == set(plurals.split(", "))
    for noun in nouns.names:
        singular, plural = nouns.forms[noun][0]
        assert plural == singular or noun_letter(plural) == "p"
