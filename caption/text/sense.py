"""Rules of English words, without a grammar: does a caption say a word twice, does a place sit, is a person named?

They are approximate. About one in twenty of people's own captions says a word twice ("a tennis player on a tennis
court"), so a model's share is to be compared with people's. Words are tokens of the tokenizer "ptb".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from caption.text.english import coco_words, plural, words_by_kind

ACTIONS = frozenset(["sits", "sitting", "stands", "standing", "walks", "walking"])
ANIMALS = ("bird", "cat", "dog", "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe")
VEHICLES = ("bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat")
GROUPS = frozenset(["audience", "couple", "crowd", "family", "team"])
"""Persons, unless "of" follows: "a couple of dogs"."""
NOT_OF_A_SUBJECT = words_by_kind()["function"] - words_by_kind()["determiner"]
"""Function words that cannot be in a simple noun phrase, such as prepositions."""


def is_content_word(word: str) -> bool:
    """Whether a word has four letters or more, and is neither a function word nor an adjective of `words_by_kind`.

    Those adjectives are mostly colours and sizes. Captions rarely say a content word twice.
    """
    word, kinds = word.lower(), words_by_kind()
    short = sum(map(str.isalpha, word)) < 4
    return not (short or word in kinds["function"] or word in kinds["adjective"])


def is_repetitive(words: Sequence[str]) -> bool:
    """Whether a content word is said twice, or any word twice in a row."""
    content = [word for word in words if is_content_word(word)]
    return len(set(content)) < len(content) or any(word == after for word, after in pairwise(words))


def place_acts(words: Sequence[str]) -> bool:
    """Whether a place sits, stands or walks: "a city street is standing in the street".

    The caption, or what follows "there is" or "there are", must begin with a noun phrase that ends in a place of
    `words_by_kind`, and the verb must follow it, with or without "is" or "are". So "a man in a kitchen is standing" is
    not one.
    """
    begin = 2 if words[:1] == ["there"] else 0
    end = next((place for place, word in enumerate(words) if place >= begin and word in ACTIONS), 0)
    subject = words[begin:end]
    if subject[-1:] in (["is"], ["are"]):
        subject = subject[:-1]
    return bool(subject) and subject[-1] in _places() and NOT_OF_A_SUBJECT.isdisjoint(subject)


def is_nonsense(words: Sequence[str]) -> bool:
    """Whether a caption is repetitive, or a place acts."""
    return is_repetitive(words) or place_acts(words)


def names_person(words: Sequence[str]) -> bool:
    """Whether a caption names a person by a word for COCO's category, or by another one of `words_by_kind`.

    A word directly before an animal, a vehicle or a room does not count ("a baby elephant", "a passenger train"), nor
    does a group of something else ("a couple of dogs").
    """
    return any(
        word in _persons() and after not in _described() and not (word in GROUPS and after == "of")
        for word, after in pairwise([*words, ""])
    )


@cache
def _places() -> frozenset[str]:
    return frozenset(form for word in words_by_kind()["place"] for form in (word, plural(word)))


@cache
def _persons() -> frozenset[str]:
    others = (form for word in words_by_kind()["person"] for form in (word, plural(word)))
    return frozenset(coco_words("person")).union(others)


@cache
def _described() -> frozenset[str]:
    """Nouns before which a word for a person describes something else."""
    return frozenset(word for name in (*ANIMALS, *VEHICLES, "room") for word in coco_words(name))
