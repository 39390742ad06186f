"""Word pieces of a foreign tokenizer as a vocabulary, and captions joined from them.

Pieces of all tokenizers are shown in one way: "gi", "##raf", "##fe". A piece that continues a word has the prefix "##".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from caption.core.errors import UserError, printable
from caption.results.caption import AttentionMaps, Caption
from caption.text.scripts import SCRIPTS
from caption.text.tokenizer import Tokenizer
from caption.text.vocabulary import SPECIAL_TOKENS, SURROGATE, Vocabulary, is_usable

CONTINUES = "##"
FIRST_MARKS = ("Ġ", "▁")
"""Marks of byte-level tokenizers and of SentencePiece at the beginning of a word. Other tokenizers mark pieces that
continue a word."""


UNSPACED = re.compile(f"[{''.join(characters for characters, *_ in SCRIPTS.values())}]")
"""A character of a script without spaces between words."""
SPACE = re.compile(r"\[\d+\]")
"""A piece that is a space alone, as pieces without a text are shown."""
UNREADABLE = "�"
"""In pieces that are bytes of a character."""


class PieceTokenizer(Tokenizer):
    """A tokenizer of transformers that shows pieces.

    Args:
        tokenizer: of transformers.
        shown: all pieces as they are shown, by number.
    """

    name = "pieces"
    version = "1"
    case = "kept"
    punctuation = "kept"

    def __init__(self, tokenizer: Any, shown: Sequence[str]) -> None:
        self.tokenizer, self.shown = tokenizer, shown
        self.numbers = {piece: number for number, piece in enumerate(shown)}

    def _split(self, text: str) -> list[str]:
        return [self.shown[number] for number in self.tokenizer(text, add_special_tokens=False)["input_ids"]]

    def join(self, words: Sequence[str]) -> str:
        """The text of pieces, as the tokenizer decodes it; with its hidden characters escaped, since bytes of several
        pieces may form one."""
        numbers = [self.numbers[word] for word in words if word in self.numbers]
        text: str = self.tokenizer.decode(numbers, skip_special_tokens=True)
        return printable(" ".join(SURROGATE.sub(UNREADABLE, text).split()))


class PieceVocabulary(Vocabulary):
    """The pieces of a model after the special tokens of this package: piece n has the id n + 4.

    Args:
        tokenizer: of transformers.
        size: V, the number of the model's logits, which may exceed the tokenizer's pieces.
    """

    def __init__(self, tokenizer: Any, size: int) -> None:
        named_count = min(size, len(tokenizer))
        names = tokenizer.convert_ids_to_tokens(list(range(named_count)))
        special = set(tokenizer.all_special_ids)
        marked = any(name.startswith(FIRST_MARKS) for name in names if name)
        shown: dict[str, None] = dict.fromkeys(SPECIAL_TOKENS)
        for number in range(size):
            name = names[number] if number < named_count else None
            piece = name if number in special else _shown(name, marked, tokenizer)
            if not piece or piece in shown or not is_usable(piece) or piece.split() != [piece]:
                piece = f"{piece if piece and is_usable(piece) else ''}[{number}]".replace(" ", "")
            shown[piece] = None
        pieces = list(shown)[len(SPECIAL_TOKENS) :]
        super().__init__(pieces, "none")
        self.tokenizer = PieceTokenizer(tokenizer, pieces)

    @cached_property
    def content(self) -> tuple[int, ...]:
        """Raises a `UserError`: a piece is not a word."""
        raise UserError(
            "this model writes words in pieces, so its search cannot see that a word is repeated: leave out "
            "repeat_penalty"
        )


def _shown(name: str | None, marked: bool, tokenizer: Any) -> str:
    if not name:
        return ""
    if not marked:
        return name
    text = str(tokenizer.convert_tokens_to_string([name])).strip()
    return text if name.startswith(FIRST_MARKS) or not text else CONTINUES + text


def word_lengths(pieces: Sequence[str]) -> list[int]:
    """The number of pieces of each word. Marks such as a full stop are words of their own, and so are pieces of scripts
    that put no spaces between words, such as Chinese."""
    lengths: list[int] = []
    after_mark, before = True, ""
    for piece in pieces:
        text = piece.removeprefix(CONTINUES)
        mark = bool(text) and not any(letter.isalnum() or letter in "'’-" for letter in text)
        if after_mark or mark or _unspaced(before, text) or not piece.startswith(CONTINUES):
            lengths.append(0)
        lengths[-1] += 1
        after_mark, before = mark, "" if SPACE.fullmatch(text) else text
    return lengths


def _unspaced(before: str, text: str) -> bool:
    """Whether a word may begin here without a space."""
    return bool(before) and text[:1].isalnum() and bool(UNSPACED.search(before[-1:] + text[:1]))


def split(caption: Caption, vocabulary: Vocabulary) -> Caption:
    """The inverse of `joined`; the pieces of a caption that another model has written share their word's map."""
    if all(word in vocabulary for word in caption.stepwise.words):
        return caption.stepwise
    pairs = pairwise(["", *caption.words])
    spaces = ["" if not before or _unspaced(before, word) else " " for before, word in pairs]
    pieces = [vocabulary.tokenizer(space + word) for space, word in zip(spaces, caption.words, strict=True)]
    lengths = [len(of_word) for of_word in pieces]
    return replace(
        caption, words=[piece for of_word in pieces for piece in of_word],
        weights=np.repeat(caption.weights, lengths, axis=0),
        word_log_probs=np.repeat(caption.word_log_probs / np.maximum(lengths, 1), lengths), gates=None,
        maps=AttentionMaps(), alternatives=[], likeliest=None, lens=None, beam_tree=None, by_piece=None,
    )  # fmt: skip


def joined(caption: Caption, tokenizer: Tokenizer) -> Caption:
    """A caption of pieces as one of words: maps are the mean over a word's pieces, log p is their sum.

    The caption of pieces is kept as `Caption.by_piece`. Among the likeliest words at the step of a word's first piece,
    this piece stands for the word.
    """
    lengths = word_lengths(caption.words)
    starts = np.cumsum([0, *lengths])[:-1].astype(int)

    def mean(values: np.ndarray) -> np.ndarray:
        sizes = np.array(lengths, dtype=np.float32).reshape(-1, *[1] * (values.ndim - 1))
        return np.add.reduceat(values, starts, axis=0) / sizes if lengths else values

    def word(pieces: Sequence[str]) -> str:
        together = "".join(piece.removeprefix(CONTINUES) for piece in pieces)
        is_shown = not any(UNREADABLE in piece or piece.endswith("]") for piece in pieces)
        return together if is_shown else tokenizer.join(pieces) or together

    words = [
        word(caption.words[start : start + length]) for start, length in zip(starts, lengths, strict=True)
    ]
    log_probs = caption.word_log_probs
    return replace(
        caption, words=words, weights=mean(caption.weights), by_piece=caption,
        word_log_probs=np.add.reduceat(log_probs, starts) if lengths else log_probs,
        maps=AttentionMaps({name: mean(maps) for name, maps in caption.maps.items()}, dict(caption.maps.boxes)),
        alternatives=[joined(alternative, tokenizer) for alternative in caption.alternatives],
        likeliest=caption.likeliest and [
            [(text if piece == caption.words[start] else piece, log_p) for piece, log_p in caption.likeliest[start]]
            for text, start in zip(words, starts, strict=True)
        ],
    )  # fmt: skip
