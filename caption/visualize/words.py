"""Which words of a caption are drawn: given ones, or k words that name things.

Maps alone do not show which words name things; in English, parts of speech nearly always do. Share of nouns among the
k words chosen, of 80 captions of photos by the installed model (191 nouns marked by hand; k at most as many as a
caption has):

    k                                                    1      2      3
    at random                                          0.29   0.26   0.31
    the largest α                                      0.59   0.51   0.49
    least entropy                                      0.64   0.53   0.51
    farthest from the caption's mean map               0.62   0.53   0.53
    the same, without function words                   0.79   0.77   0.76
    the same, last words of noun phrases first         0.99   0.98   0.98

`naming_steps` takes the last words of noun phrases and no others, so a caption with two nouns has two words at most.
If no word is a known function word, as in another language, only the distance from the mean map is used.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from caption.results.lens_reading import LEAST_SEEN, Seen
from caption.text.english import words_by_kind
from caption.text.tokenizer import nfc

if TYPE_CHECKING:
    from caption.results.caption import Caption

FUNCTION_WORDS = words_by_kind()["function"]
"""Words of English that name nothing: articles, pronouns, numbers, prepositions, auxiliary verbs."""
Words = int | str | Sequence[str | int]
"""A number of words, a word, or words and places."""


def seen_at_words(caption: Caption) -> list[tuple[str, Seen]]:
    """The words of a caption that may name things, with the thing that a lens sees there, if one is likely."""
    if caption.lens is None:
        return []
    steps = [step for step, word in enumerate(caption.words) if word.lower() not in FUNCTION_WORDS]
    things = [(caption.words[step], caption.lens.seen(step, LEAST_SEEN)) for step in steps]
    return [(word, thing) for word, thing in things if thing is not None]


def steps_of(caption: Caption, words: Words | None, strict: bool = True) -> list[int]:
    """The places of words in a caption, in its order.

    Args:
        caption: T words.
        words: a number k: at most k words that name things (`naming_steps`). A word, in any case: all its occurrences.
            A sequence: its words and places, counted from 0. None = all.
        strict: raise an error for a missing word instead of leaving it out.

    Raises:
        ValueError: there is no such word or place, or k is less than 1.
    """
    if words is None:
        return list(range(len(caption.words)))
    if isinstance(words, int):
        if words < 1:
            raise ValueError(f"words must be at least 1, not {words}")
        return naming_steps(caption, words)
    chosen: set[int] = set()
    for wanted in [words] if isinstance(words, str) else words:
        if isinstance(wanted, str):
            form = nfc(wanted).casefold()
            steps = [step for step, word in enumerate(caption.words) if nfc(word).casefold() == form]
        else:
            steps = [wanted] if 0 <= wanted < len(caption.words) else []
        if strict and not steps:
            raise ValueError(f"there is no word {wanted!r} in the caption {str(caption)!r}")
        chosen.update(steps)
    return sorted(chosen)


def spans_of(words: Sequence[str], sentence: str, steps: Container[int | None]) -> list[tuple[int, int]]:
    """For the words at these places, the first letter of each in the sentence and the one after its last."""
    spans: list[tuple[int, int]] = []
    end = 0
    for step, word in enumerate(words):
        start = sentence.find(word, end)
        if start >= 0:
            end = start + len(word)
            if step in steps:
                spans.append((start, end))
    return spans


def naming_steps(caption: Caption, count: int) -> list[int]:
    """The places of the words that name things, in the caption's order.

    A noun is the last word of its phrase: the next word is a function word or a verb, or the caption ends. Of several,
    those with the maps farthest from the caption's mean map (total variation) are taken. There may be fewer than
    `count`. In a caption without English function words, all words are candidates.
    """
    words = [word.casefold() for word in caption.words]
    if not words:
        return []
    maps = caption.weights.reshape(len(words), -1)
    distance = np.abs(maps - maps.mean(0)).sum(1) / 2
    if FUNCTION_WORDS.isdisjoint(words):
        names = list(range(len(words)))
    else:
        ends = [word in FUNCTION_WORDS or _is_verb(word) for word in words]
        last = [step for step, (end, next_end) in enumerate(pairwise([*ends, True])) if next_end and not end]
        names = [step for step in last if words[step] not in words_by_kind()["adjective"]]
    return sorted(sorted(names, key=lambda step: -distance[step])[:count])


def _is_verb(word: str) -> bool:
    kinds = words_by_kind()
    return word in kinds["verb"] or (word.endswith("ing") and word not in kinds["noun in -ing"])
