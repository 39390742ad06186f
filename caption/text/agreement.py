"""Agreement in English captions: articles and numbers with their nouns, "an" before vowels.

Words are judged by their forms and by the lists of `caption.text.english`. This is no grammar of English; it knows the
short sentences in which captions describe photos, and refuses what it cannot tell.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from caption.text.english import IRREGULAR, words_by_kind

VOWEL = re.compile(r"(?!eu|ewe|onc?e\b|uni(?!m|n)|us[aeiu]|ut[ei]|uk)[aeiou]|hour|honest|heir|suv\b")
SINGULAR_IN_S = re.compile(r"(ss|(?<![mnz])us|tamus|tennis|iris|trellis|oasis|canvas|christmas|gas|lens)$")
LETTERS = {
    "determiner of one": "a", "determiner of many": "t", "determiner": "x", "function": "f", "verb": "f",
    "noun in -ing": "s", "adjective": "j", "plural": "p", "uncountable": "u", "singular and plural": "e",
}  # fmt: skip
"""What stands for a word in `SENTENCE`, by its kind; words of no kind are participles ("j") or nouns ("s" or "p")."""
SENTENCE = re.compile(
    r"""(f | & | j                                     # "is", "and", "standing"
    | a  (j(&j)?)* ([spue]*[se] | [SE]) (?![spueSPUE])  # "a black and white soccer ball"
    | x?t (j(&j)?)* ([spue]*[pe] | [PE]) (?![spueSPUE])  # "the two dogs"
    | x  (j(&j)?)* ([spue]+ | [SPUE]) (?![spueSPUE])    # "the grass"
    | ([spue]+ | [PUE]) (?![spueSPUE]) )*               # "water", but no thing in the singular
    """,
    re.VERBOSE,
)
"""Sentences that agree, a letter for each word; the thing that is to be named has a capital letter."""


def with_articles(words: Sequence[str]) -> list[str]:
    """The words with "an" before the sound of a vowel and "a" before others: an hour, a unicycle."""
    return [
        ("an" if VOWEL.match(after) else "a") if word in ("a", "an") else word
        for word, after in zip(words, [*words[1:], ""], strict=True)
    ]


def agrees(words: Sequence[str], thing: str) -> bool:
    """Whether a sentence in lower case names a thing once, in a phrase of its own, and its nouns agree with articles
    and numbers.

    It refuses "a coffee wall", "a black and glasses", "in front of envelope", "two dog", "a glasses", "in a red", "a
    red and red", and sentences that name the same twice. `thing` is one of the words.
    """
    letters = [noun_letter(word).upper() if word == thing else _letter(word) for word in words]
    nouns = [word for word, letter in zip(words, letters, strict=True) if letter in "spueSPUE"]
    repeated = len({*nouns}) < len(nouns) or any(
        word == again for word, again in zip(words, words[2:], strict=False)
    )
    return not repeated and SENTENCE.fullmatch("".join(letters)) is not None


def noun_letter(noun: str) -> str:
    """ "s" for a singular, "p" for a plural, "e" for what may be either, "u" for what is not counted."""
    last = noun.rpartition(" ")[2]
    for kind in ("plural", "uncountable", "singular and plural"):
        if last in words_by_kind()[kind]:
            return LETTERS[kind]
    in_s = last.endswith("s") and not SINGULAR_IN_S.search(last)
    return "p" if in_s or last.endswith("men") or last in IRREGULAR.values() else "s"


def _letter(word: str) -> str:
    kinds = words_by_kind()
    if word == "and":
        return "&"
    listed = next((letter for kind, letter in LETTERS.items() if word in kinds[kind]), None)
    participle = len(word) > 4 and word.endswith(("ing", "ed"))
    return listed or ("j" if participle else noun_letter(word))
