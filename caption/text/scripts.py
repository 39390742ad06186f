"""Scripts that are written without spaces between words, and how to detect them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from caption.text.treebank_words import LETTER

HAN_AND_KANA = (
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U000323af"
)
"""Chinese characters, hiragana and katakana: a range within [...] of a regular expression."""
MARKS = "\u3099\u309a\ufe00-\ufe0f"
"""Characters that modify the preceding one: voiced sound marks, variation selectors."""
SPACES = "put spaces between the words{}, and take the tokenizer 'none'"
SCRIPTS = {
    "Chinese or Japanese": (HAN_AND_KANA, 4, "take the tokenizer 'characters'"),
    "Thai": ("\u0e01-\u0e3a\u0e40-\u0e4e", 9, SPACES.format(" (PyThaiNLP does it)")),
    "Lao": ("\u0e81-\u0ebd\u0ec0-\u0ecd", 9, SPACES.format("")),
    "Burmese": ("\u1000-\u109f", 9, SPACES.format("")),
    "Khmer": ("\u1780-\u17d3", 9, SPACES.format("")),
}
"""By language: its characters, a length above the mean length of its words, and the remedy."""
SIGNS_DROPPED = re.compile("[\u0a00-\u0a7f\u0b00-\u0b7f\u0c80-\u0dff\u0f00-\u109f\u1780-\u17ff]")
"""Gurmukhi, Odia, Kannada, Malayalam, Sinhala, Tibetan, Burmese, Khmer: Stanford's tokenizer, and so "ptb", takes some
or all of their vowel signs and final marks for spaces."""


def has_dropped_signs(words: Iterable[str]) -> bool:
    """Whether words have signs of vowels, or other marks, that the tokenizer "ptb" drops (see `SIGNS_DROPPED`)."""
    signs = {letter for word in words for letter in SIGNS_DROPPED.findall(word)}
    return any(unicodedata.category(sign)[0] == "M" and not re.fullmatch(LETTER, sign) for sign in signs)


def unspaced(counts: Mapping[str, int]) -> str | None:
    """A message with reason and remedy if a language written without spaces has more than a tenth of the letters and
    its words are clauses, or if most letters are of a script whose signs the tokenizer has dropped; else None.

    Three English and two Chinese captions per photo have a fifth of the letters in Chinese.

    Args:
        counts: the number of times that each word of a tokenizer occurs.
    """
    letters = sum(len(word) * count for word, count in counts.items())
    signed = sum(len(SIGNS_DROPPED.findall(word)) * count for word, count in counts.items())
    if 2 * signed > letters and not has_dropped_signs(counts):
        return "the tokenizer drops vowel signs of their script: take 'none' (--data.tokenizer, --tokenizer)"
    for language, (characters, longest, remedy) in SCRIPTS.items():
        written = {word: count for word, count in counts.items() if re.search(f"[{characters}]", word)}
        length = sum(len(word) * count for word, count in written.items())
        if 10 * length > letters and length > longest * sum(written.values()):
            which = "they" if 2 * length > letters else "some of them"
            return (
                f"{which} are {language}, without spaces, so that a whole clause would be one word: {remedy} "
                "(--data.tokenizer, --tokenizer)"
            )
    return None
