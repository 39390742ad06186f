"""Two measures of captions that need only people's captions: persons where nobody is, and nonsense.

The rules for words are in `caption.text.sense`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from caption.analysis.per_word import known_mean
from caption.metrics.significance import Estimate
from caption.text.sense import is_nonsense, names_person
from caption.text.tokenizer import get_tokenizer

tokenize = get_tokenizer("ptb")


class Sense(NamedTuple):
    """A measure of captions, one of each photo; the shares have 95 % intervals by bootstrap over photos."""

    by_photo: dict[str, bool]
    """For each measured photo, whether its caption has the fault."""
    share: Estimate
    """The share of these photos; NaN if there are none."""
    people: Estimate
    """The share of people's captions of these photos with the same fault; NaN if there are none."""


def persons(captions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> Sense:
    """How often captions name a person where people name none.

    Args:
        captions: a model's, by photo.
        references: the captions that people wrote of each. Photos are measured that have some, none of which names a
            person; so the share of people's captions is 0.
    """
    empty = {
        photo: text
        for photo, text in captions.items()
        if references.get(photo) and not any(names_person(tokenize(other)) for other in references[photo])
    }
    by_photo = {photo: names_person(tokenize(text)) for photo, text in empty.items()}
    return Sense(by_photo, _share([[named] for named in by_photo.values()]), _share([[False] for _ in empty]))


def nonsense(captions: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> Sense:
    """How often captions make no sense: see `caption.text.sense.is_nonsense`.

    Args:
        captions: a model's, by photo; all are measured.
        references: the captions that people wrote of some photos, for comparison.
    """
    by_photo = {photo: is_nonsense(tokenize(text)) for photo, text in captions.items()}
    people = [[is_nonsense(tokenize(text)) for text in references.get(photo, [])] for photo in captions]
    return Sense(by_photo, _share([[flag] for flag in by_photo.values()]), _share(people))


def _share(by_photo: Sequence[Sequence[bool]]) -> Estimate:
    """The mean over all captions, a list of each photo."""
    photos = np.repeat(np.arange(len(by_photo)), [len(several) for several in by_photo])
    return known_mean(np.array([flag for several in by_photo for flag in several], float), photos)
