"""Persons where nobody is, and nonsense, against an example counted by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from caption.analysis.sense import nonsense, persons
from caption.analysis.study import Images, sentences
from caption.analysis.study.measure import Measure

CAPTIONS = {
    "a": "A man is standing on a street.",  # nobody is there
    "b": "a kitchen is sitting on a table",
    "c": "a baby elephant",
    "d": "a man in a kitchen with a kitchen",  # a man is there
}
REFERENCES = {
    "a": ["an empty street", "a street with a couple of cars"],
    "b": ["a kitchen", "a kitchen in a kitchen"],
    "c": ["an elephant"],
    "d": ["a kitchen", "a chef in it"],
}


def test_an_example_counted_by_hand() -> None:
    found = persons(CAPTIONS, REFERENCES)
    assert found.by_photo == {"a": True, "b": False, "c": False}
    assert (found.share.mean, found.people.mean) == (1 / 3, 0)
    assert found.share.low < found.share.mean < found.share.high
    found = nonsense(CAPTIONS, REFERENCES)
    assert found.by_photo == {"a": False, "b": True, "c": False, "d": True}
    assert (found.share.mean, found.people.mean) == (2 / 4, 1 / 7)


def test_without_peoples_captions_nobody_knows_who_is_there() -> None:
    assert persons(CAPTIONS, {}).by_photo == {}
    assert np.isnan(persons(CAPTIONS, {}).share.mean)
    found = nonsense(CAPTIONS, {})
    assert (found.share.mean, np.isnan(found.people.mean)) == (2 / 4, True)


def test_the_tables_have_a_row_for_each_model_and_name_examples() -> None:
    captions = [SimpleNamespace(text=text) for text in CAPTIONS.values()]

    def table(measure: Measure, references: dict[str, list[str]]) -> Any:
        images = Images(list("abcd"), [], references, {})
        model: Any = SimpleNamespace(name="mine", images=images, photos=images.photos, captions=captions)
        return measure([model])

    found = table(sentences.persons, REFERENCES)
    assert [list(map(str, row)) for row in found.rows] == [["mine", "3", "33 % [0, 100]"]]
    assert table(sentences.persons, {}).missing == sentences.NEED_REFERENCES
    assert "give photos without people" in table(sentences.persons, {"a": ["a man"]}).missing
    found = table(sentences.nonsense, REFERENCES)
    assert list(map(str, found.rows[0]))[:2] == ["mine", "4"]
    assert found.rows[0][2].estimate.mean == 2 / 4
    assert found.notes == [f"Nonsense by mine: {CAPTIONS['b']}, {CAPTIONS['d']}."]
    assert str(table(sentences.nonsense, {}).rows[0][3]) == "–"
