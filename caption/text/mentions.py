"""Names of objects in captions: where they stand, and what they name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from caption.core.box import BoxLike


@dataclass(frozen=True)
class Mention:
    """An object's name in a caption."""

    name: str
    word: int
    """Index of the word that names the object: the last one of the name, "circle" in "red circle"."""
    boxes: tuple[BoxLike, ...]
    """Where the object is; empty if the caption names an object that the image does not show."""


def find_mentions(words: Sequence[str], boxes: Mapping[str, Sequence[BoxLike]]) -> list[Mention]:
    """The mentions of objects in a caption: the names of `boxes`, word for word, whatever their case.

    Names do not overlap, and of two that begin at one word the longer is taken: "hot dog" is not a "dog". A
    name without boxes makes a mention without boxes: the caption names an object that is not there.
    """
    names: dict[str, str] = {}
    for name in boxes:
        names.setdefault(" ".join(name.lower().split()), name)
    longest = max((name.count(" ") + 1 for name in names), default=0)
    spoken = [word.lower() for word in words]
    mentions = []
    for span in longest_names(spoken, names.__contains__, longest):
        name = names[" ".join(spoken[span])]
        mentions.append(Mention(name, span.stop - 1, tuple(boxes[name])))
    return mentions


def longest_names(words: Sequence[str], is_name: Callable[[str], bool], longest: int = 3) -> list[slice]:
    """Where words are names, of at most `longest` words; the longest counts, and none overlap."""
    spans: list[slice] = []
    start = 0
    while start < len(words):
        ends = range(min(start + longest, len(words)), start, -1)
        end = next((end for end in ends if is_name(" ".join(words[start:end]))), None)
        if end is not None:
            spans.append(slice(start, end))
        start = end or start + 1
    return spans
