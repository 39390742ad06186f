"""CHAIR: how often captions name objects that are not in the photo.

A caption mentions an object by the words for COCO's categories (`caption.text.english.coco_words`). The mention is
hallucinated if its category is neither annotated in the photo nor mentioned in one of the reference captions. CHAIRi is
the share of all mentions that are hallucinated, and CHAIRs the share of captions with at least one.

The words are this package's. The authors' code has a longer list and rules for single phrases, such as that a "baby
elephant" is not a person, so its numbers differ.

Source: Rohrbach et al. 2018, "Object Hallucination in Image Captioning", section 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from caption.analysis.per_word import known_mean
from caption.metrics.significance import Estimate, estimate
from caption.text.mentions import longest_names
from caption.text.tokenizer import get_tokenizer


class Chair(NamedTuple):
    """Both shares, with 95 % intervals by bootstrap over photos."""

    instances: Estimate
    """CHAIRi; NaN if no caption mentions an object."""
    sentences: Estimate
    """CHAIRs."""
    mentions: int
    """All mentions of objects."""
    hallucinated: list[str]
    """The categories that are mentioned although absent, the most frequent first."""


def chair(
    captions: Mapping[str, str],
    shown: Mapping[str, Collection[str]],
    references: Mapping[str, Sequence[str]],
    words: Mapping[str, Sequence[str]],
) -> Chair:
    """Measure captions, one of each photo.

    Args:
        captions: a model's, by photo.
        shown: the categories in each photo.
        references: the captions that people wrote of each.
        words: the words for every category, in lower case.

    Raises:
        ValueError: there are no captions.
    """
    tokenize = get_tokenizer("ptb")
    category_of = {word: category for category, several in words.items() for word in several}

    def mentioned(text: str) -> list[str]:
        spoken = tokenize(text)
        return [
            category_of[" ".join(spoken[span])] for span in longest_names(spoken, category_of.__contains__)
        ]

    wrong: list[list[bool]] = []
    hallucinated: Counter[str] = Counter()
    for photo, caption in captions.items():
        true = {*shown[photo], *(category for text in references[photo] for category in mentioned(text))}
        categories = mentioned(caption)
        wrong.append([category not in true for category in categories])
        hallucinated.update(category for category in categories if category not in true)
    photos = np.repeat(np.arange(len(wrong)), [len(several) for several in wrong])
    mentions = np.concatenate([np.array(several, float) for several in wrong])
    sentences = estimate([any(several) for several in wrong], np.arange(len(wrong)))
    return Chair(known_mean(mentions, photos), sentences, len(mentions), [*dict(hallucinated.most_common())])
