"""Mentions of objects in captions: the position of the name, and the object's boxes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from caption.core.box import BoxLike
from caption.text.scripts import HAN_AND_KANA, MARKS
from caption.text.tokenizer import nfc

_CHARACTER = re.compile(f"[{HAN_AND_KANA}][{MARKS}]*")


@dataclass(frozen=True)
class Mention:
    """An object's name in a caption."""

    name: str
    word: int
    """Index of the word that names the object: the last one of the name, "circle" in "red circle"."""
    boxes: tuple[BoxLike, ...]
    """The boxes of the object; empty if the caption names an object that is not in the image."""


def find_mentions(words: Sequence[str], boxes: Mapping[str, Sequence[BoxLike]]) -> list[Mention]:
    """The mentions of objects in a caption: the names of `boxes`, word for word, ignoring case and the
    form of Unicode.

    Names do not overlap, and if two begin at the same word, the longer one is taken: "hot dog" is not a "dog". A name
    without boxes gives a mention without boxes: the caption names an object that is not in the image. Names in Chinese
    and Japanese are found as words and character by character.
    """
    names: dict[str, str] = {}
    for name in boxes:
        names.setdefault(" ".join(nfc(name).lower().split()), name)
    for name in boxes:
        names.setdefault(" ".join(_CHARACTER.sub(r" \g<0> ", nfc(name).lower()).split()), name)
    longest = max((name.count(" ") + 1 for name in names), default=0)
    lower = [nfc(word).lower() for word in words]
    mentions = []
    for span in longest_names(lower, names.__contains__, longest):
        name = names[" ".join(lower[span])]
        mentions.append(Mention(name, span.stop - 1, tuple(boxes[name])))
    return mentions


def longest_names(words: Sequence[str], is_name: Callable[[str], bool], longest: int = 3) -> list[slice]:
    """The spans of words that are names of at most `longest` words; the longest match is taken, without overlaps."""
    spans: list[slice] = []
    start = 0
    while start < len(words):
        ends = range(min(start + longest, len(words)), start, -1)
        end = next((end for end in ends if is_name(" ".join(words[start:end]))), None)
        if end is not None:
            spans.append(slice(start, end))
        start = end or start + 1
    return spans
