"""Which words of a caption are drawn: those that are named, or the k that name things.

Maps alone do not tell which words name things: by part of speech, k words of an English caption are found nearly
always. Share of nouns among the k words chosen, of 80 captions of photos by the installed model (191 nouns marked by
hand; k at most as many as a caption has):

    k                                                    1      2      3
    at random                                          0.29   0.26   0.31
    the largest α                                      0.59   0.51   0.49
    least entropy                                      0.64   0.53   0.51
    farthest from the caption's mean map               0.62   0.53   0.53
    the same, without function words                   0.79   0.77   0.76
    the same, last words of noun phrases first         0.99   0.98   0.98

`naming_steps` takes the last words of noun phrases and no others, so a caption with two nouns has two words at most.
Where no word is known as a function word, as in another language, the distance from the mean map remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from caption.lens_reading import LEAST_SEEN, Seen

if TYPE_CHECKING:
    from caption.result import Caption

FUNCTION_WORDS = frozenset(
    """
    is are was were be been being a an the this that these those his her its their some another other each both all no
    one two three four five six several many few
    and or but while as with without in on at of to into onto from by for up down out off over under above below
    between among around through across along against behind beside near next front back top left right inside outside
    toward towards past after before during
    am has have having do does did can there we it he she they him them who which what where while not
    """.split()  # noqa: SIM905
)
"""Words of English that name nothing: articles, pronouns, numbers, prepositions, auxiliary verbs."""
VERBS = frozenset(
    """
    carries chases climbs flies get gets goes hangs holds jumps lays leans leaps look looks makes performs plays poses
    pushes rides run runs see sees sit sits smiles stand stands swims takes talks throws tries waits walks watches wears
    attached covered dressed filled gathered held seated surrounded thrown
    """.split()  # noqa: SIM905
)
"""Verbs of captions that are rarely nouns there; those in -ing are recognised without a list."""
NOUNS_IN_ING = frozenset(
    """
    awning building ceiling clothing crossing drawing earring evening king landing lighting morning painting railing
    ring something spring string swing thing wedding wing
    """.split()  # noqa: SIM905
)
ADJECTIVES = frozenset(
    """
    beige black blue brown golden gray green grey orange pink purple red silver tan white yellow
    airborne asleep away big fast full high large little long nearby old open ready short small tall together wet young
    """.split()  # noqa: SIM905
)
"""Adjectives and adverbs of captions that may end a phrase: "a black and white dog"."""
Words = int | str | Sequence[str | int]
"""A number of words, a word, or words and places."""


def seen_at_words(caption: Caption) -> list[tuple[str, Seen]]:
    """The words of a caption that may name things, each with what a lens sees there, where something is likely."""
    if caption.lens is None:
        return []
    steps = [step for step, word in enumerate(caption.words) if word.lower() not in FUNCTION_WORDS]
    things = [(caption.words[step], caption.lens.seen(step, LEAST_SEEN)) for step in steps]
    return [(word, seen) for word, seen in things if seen is not None]


def steps_of(caption: Caption, words: Words | None, strict: bool = True) -> list[int]:
    """The places of words in a caption, in its order.

    Args:
        caption: T words.
        words: a number k: at most k words, those that name things (`naming_steps`). Words, of any case: wherever they
            stand. In a sequence also places, counted from 0. None = all.
        strict: refuse a word that is not there; otherwise it is left out.

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
            steps = [step for step, word in enumerate(caption.words) if word.casefold() == wanted.casefold()]
        else:
            steps = [wanted] if 0 <= wanted < len(caption.words) else []
        if strict and not steps:
            raise ValueError(f"there is no word {wanted!r} in the caption {str(caption)!r}")
        chosen.update(steps)
    return sorted(chosen)


def naming_steps(caption: Caption, count: int) -> list[int]:
    """The places of the words that name things, in the caption's order.

    Nouns are last in their phrases: the next word is a function word or a verb, or there is none. Of several, those are
    taken whose maps are farthest from the caption's mean map (total variation). There may be fewer than `count`. In a
    caption without function words of English, all words count.
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
        names = [
            step
            for step, (end, next_end) in enumerate(pairwise([*ends, True]))
            if next_end and not end and words[step] not in ADJECTIVES
        ]
    return sorted(sorted(names, key=lambda step: -distance[step])[:count])


def _is_verb(word: str) -> bool:
    return word in VERBS or (word.endswith("ing") and word not in NOUNS_IN_ING)
