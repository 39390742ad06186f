"""Tokenizers, which split captions into words for scores and vocabularies."""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import lru_cache

from caption.core.errors import UserError
from caption.text.scripts import HAN_AND_KANA, MARKS
from caption.text.treebank import pieces, tokenize

PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"])
"""The tokens that coco-caption removes. Its list also contains brackets ("-LRB-" and so on), but in capitals: they
never match the lower-case "-lrb-", so brackets are words there, and therefore here."""

BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "-lcb-": "{", "-rcb-": "}"}
"""Brackets by their Treebank spelling, in lower case."""


def nfc(text: str) -> str:
    """A text with composed letters: macOS and some keyboards write "é" as "e" and an accent, which would be another
    word."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


class Tokenizer(ABC):
    """A function from a caption to its words, without state except a cache."""

    name: str
    """Its name in `get_tokenizer`, on the command line and in checkpoints."""
    version: str
    """Increased when the same text may be split into other words than before; part of every score's signature."""
    case: str
    """"lower" or "kept": the treatment of capitals; part of the signature."""
    punctuation: str
    """"removed" or "kept"; part of the signature."""
    scored_by: str = "ptb"
    """Name of the tokenizer for scoring captions in training, if the vocabulary has the words of this one."""
    brackets: Mapping[str, str] = BRACKETS
    """What a text has in the place of these words."""
    unwritten: str = "(?!)"
    """Regular expression of the spaces between words that are left out in a text; by default, it matches nothing."""

    def __call__(self, text: str) -> list[str]:
        """The words of `text` in order, perhaps none. Words do not contain white space, and are in NFC."""
        return self._split(nfc(text))

    @abstractmethod
    def _split(self, text: str) -> list[str]:
        """The words of a text in NFC."""

    def join(self, words: Sequence[str]) -> str:
        """The text that this tokenizer splits into these words: "-lrb-" is written as "("."""
        text = " ".join(words)
        for spelling, bracket in self.brackets.items():
            text = re.sub(spelling, bracket, text, flags=re.IGNORECASE)
        return re.sub(self.unwritten, "", text)


class PTBTokenizer(Tokenizer):
    """Penn Treebank words as in coco-caption: Stanford's tokenizer, lower case, punctuation removed.

    By default its output equals that of `PTBTokenizer -preserveLines -lowerCase` of Stanford CoreNLP 3.4.1 after
    coco-caption's filter (Chen et al. 2015, arXiv 1504.00325, section 3), without Java, on text in NFC.
    docs/scores.md lists the known differences. Some papers use the other three settings.

    Args:
        lower: False keeps capitals: "A" and "a" are two words.
        punctuation: True keeps punctuation marks as words.
    """

    def __init__(self, lower: bool = True, punctuation: bool = False) -> None:
        self.name = "ptb" + ("" if lower else "-cased") + ("-punct" if punctuation else "")
        self.version = "1"
        self.case = "lower" if lower else "kept"
        self.punctuation = "kept" if punctuation else "removed"

    def _split(self, text: str) -> list[str]:
        lower, marks = self.case == "lower", self.punctuation == "kept"
        words: list[str] = []
        for piece in pieces(text):
            words.extend(_words(piece, lower, marks))
        return words


@lru_cache(200_000)  # pieces, about 50 MB; captions repeat the same few thousand pieces many times
def _words(piece: str, lower: bool, marks: bool) -> tuple[str, ...]:
    """The words of a piece of text; with punctuation `marks` or without."""
    tokens = (token.lower() if lower else token for token in tokenize(piece))
    return tuple(token for token in tokens if marks or token not in PUNCTUATION)


class CharacterTokenizer(Tokenizer):
    """For Chinese and Japanese: each character is a word. Words in other scripts are those of `PTBTokenizer()`.

    Captions in these languages are often scored by character, because words are a matter of the segmenter.
    """

    name = "characters"
    version = "1"
    case = "lower"
    punctuation = "removed"
    scored_by = "characters"
    _character = re.compile(f"([{HAN_AND_KANA}][{MARKS}]*)")
    unwritten = f"(?<=[{HAN_AND_KANA}{MARKS}]) (?=[{HAN_AND_KANA}])"

    def _split(self, text: str) -> list[str]:
        words: list[str] = []
        for number, part in enumerate(self._character.split(text)):
            if number % 2:
                words.append(part)
            else:  # PTB does not know the punctuation of these scripts
                words += (word for word in TOKENIZERS["ptb"](part) if any(map(str.isalnum, word)))
        return words


class WhitespaceTokenizer(Tokenizer):
    """For text that is already tokenized: splits at white space and changes nothing but the form of Unicode."""

    name = "none"
    version = "1"
    case = "kept"
    punctuation = "kept"
    brackets: Mapping[str, str] = {}

    def _split(self, text: str) -> list[str]:
        return text.split()


TOKENIZERS: dict[str, Tokenizer] = {
    tokenizer.name: tokenizer
    for tokenizer in (
        PTBTokenizer(),
        PTBTokenizer(punctuation=True),
        PTBTokenizer(lower=False),
        PTBTokenizer(lower=False, punctuation=True),
        CharacterTokenizer(),
        WhitespaceTokenizer(),
    )
}
"""Every tokenizer by its name."""


def get_tokenizer(name: str) -> Tokenizer:
    """The tokenizer called `name`; the same object every time.

    Raises:
        UserError: there is no such tokenizer; the message names the existing ones.
    """
    if name not in TOKENIZERS:
        raise UserError(f"there is no tokenizer '{name}': choose one of {', '.join(TOKENIZERS)}.")
    return TOKENIZERS[name]
