"""CHAIR against an example counted by hand and against a second transcription of its definition."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from caption.analysis.chair import chair
from caption.analysis.study import Images, sentences
from caption.data.photo_boxes import BoxedPhoto
from caption.text.english import coco_words

WORDS = {name: coco_words(name) for name in ("person", "dog", "cat", "couch", "hot dog")}
CAPTIONS = {
    "a": "A dog sits on a sofa, next to a hot dog.",  # nobody else sees the hot dog
    "b": "two men and a woman",  # nobody is there: both mentions are wrong
    "c": "cats",
    "d": "nothing here",
}
SHOWN: dict[str, set[str]] = {"a": {"dog", "person"}, "b": set(), "c": {"cat"}, "d": {"cat"}}
REFERENCES = {
    "a": ["a man", "a boy on a couch"],
    "b": ["an empty street"],
    "c": ["an animal"],
    "d": ["a cat"],
}


def test_an_example_counted_by_hand():
    found = chair(CAPTIONS, SHOWN, REFERENCES, WORDS)
    assert (found.instances.mean, found.sentences.mean, found.mentions) == (3 / 6, 2 / 4, 6)
    assert found.hallucinated == ["person", "hot dog"]
    assert found.instances.low < found.instances.mean < found.instances.high
    assert np.isnan(chair({"d": "nothing here"}, SHOWN, REFERENCES, WORDS).instances.mean)


def transcribed(
    captions: list[str], shown: list[set[str]], references: list[list[str]]
) -> tuple[float, float]:
    """CHAIRi and CHAIRs, from the definition: names are found by a regular expression, the longest first."""
    names = {word: name for name, words in WORDS.items() for word in words}
    pattern = re.compile(rf"\b(?:{'|'.join(sorted(names, key=len, reverse=True))})\b")
    hallucinated = mentioned = sentences = 0
    for caption, boxes, people in zip(captions, shown, references, strict=True):
        true = boxes | {names[word] for text in people for word in pattern.findall(text)}
        wrong = [word for word in pattern.findall(caption) if names[word] not in true]
        hallucinated += len(wrong)
        mentioned += len(pattern.findall(caption))
        sentences += bool(wrong)
    return hallucinated / mentioned, sentences / len(captions)


def test_it_equals_a_second_transcription():
    random = np.random.default_rng(0)
    vocabulary = ["a", "on", "red", *(word for words in WORDS.values() for word in words[:6])]
    captions = [" ".join(random.choice(vocabulary, 6)) for _ in range(60)]
    references = [[" ".join(random.choice(vocabulary, 4)) for _ in range(2)] for _ in captions]
    shown = [{str(name) for name in random.choice(list(WORDS), 2)} for _ in captions]
    by_photo: list[Any] = [
        {str(n): one for n, one in enumerate(several)} for several in (captions, shown, references)
    ]
    found = chair(*by_photo, WORDS)
    assert (found.instances.mean, found.sentences.mean) == pytest.approx(
        transcribed(captions, shown, references)
    )


def test_the_table_is_about_photos_with_all_categories_and_captions():
    boxed = [
        BoxedPhoto(Path(name), {}, {}, frozenset(SHOWN[name]) if name in "ab" else None) for name in "abc"
    ]
    images = Images(list("abcd"), boxed, {name: REFERENCES[name] for name in "acd"}, WORDS)
    captions = [SimpleNamespace(text=text) for text in CAPTIONS.values()]
    model: Any = SimpleNamespace(name="mine", images=images, photos=images.photos, captions=captions)
    table = sentences.chair([model])
    assert table is not None
    assert [list(map(str, row)) for row in table.rows] == [["mine", "1", "3", "33 %", "100 %"]]
    assert table.notes == ["Hallucinated by mine, most frequent first: hot dog."]
    model.images = Images(list("abcd"), boxed[2:], REFERENCES, WORDS)
    table = sentences.chair([model])
    assert table is not None
    assert table.missing == sentences.NEED_CATEGORIES
