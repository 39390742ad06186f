"""Reading text files: UTF-8, lines, JSON."""

from pathlib import Path

import pytest

from caption.core.errors import DataError
from caption.data.text_files import (
    JsonError,
    YamlError,
    coco_id,
    field,
    load_json,
    load_yaml,
    numbered_lines,
    object_list,
    read_json,
    read_text,
)


def test_text_that_cannot_be_read(tmp_path: Path):
    for path, message in (
        (tmp_path, "is a folder"),
        (tmp_path / "a\0b", "null character"),
        (tmp_path / ("x" * 5000), "cannot be read"),
        ("~nobody-of-this-name/captions.json", "does not exist"),
    ):
        with pytest.raises(DataError, match=message):
            read_text(path)


def test_lines_are_numbered_and_blank_ones_left_out():
    """Unicode separators do not end a line."""
    assert list(numbered_lines("a\u2028b\r\n \r\n\nc ")) == [(1, "a\u2028b"), (4, "c ")]


def test_json_that_cannot_be_read(tmp_path: Path):
    file = tmp_path / "captions.json"
    file.write_text('{"images": [\n{"id": 1,}\n]}')
    with pytest.raises(DataError, match=r"captions\.json'.* line 2"):
        read_json(file)
    file.write_text("[1, 2]")
    with pytest.raises(DataError, match="holds a JSON list, not an object"):
        read_json(file)


def test_entries_of_the_wrong_type():
    for data in ({}, {"images": None}, {"images": {"a": 1}}, {"images": [1]}):
        with pytest.raises(DataError, match=r"'f\.json'.*'images'"):
            object_list(data, "images", "'f.json'")
    assert field({"id": 3}, "id", int, "entry 0") == 3
    for entry in ({}, {"id": "3"}, {"id": None}):
        with pytest.raises(DataError, match=r"entry 0 .*'id'"):
            field(entry, "id", int, "entry 0")


# -- from strangers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1, "b": 2, "a": 3}', "one object has the key 'a' twice"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
        (
            "{" + "".join(f'"{number}": 1, ' for number in range(20_000)) + '"19999": 1}',
            "the key '19999' twice",
        ),
        ("[" + "9" * 5000 + "]", "a number has too many digits"),
        (r'["\ud83d\ude00", "a \udc7f"]', r"half a character, '\\udc7f'"),
        (r'{"\uD800": 1}', "half a character"),
    ],
)
def test_json_that_says_two_things_or_too_much(text: str, message: str):
    with pytest.raises(JsonError, match=message):
        load_json(text)


def test_sound_json_and_yaml():
    """Whole characters; equal keys of two objects, and those that a merge brings."""
    text = r'[{"a": "\ud83d\ude00"}, {"a": "ud800"}, "\\ud800 "]'
    assert load_json(text) == [{"a": "\U0001f600"}, {"a": "ud800"}, "\\ud800 "]
    assert load_yaml("a: &a {x: 1}\nb: [*a, *a]\nc: {<<: *a, y: 2}") == {
        "a": {"x": 1},
        "b": [{"x": 1}, {"x": 1}],
        "c": {"x": 1, "y": 2},
    }
    assert load_yaml("") is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 2001-99-99", "month must be in"),
        ("a: !!int x", "invalid literal"),
        ("a: !!python/object/apply:os.system [ls]", "line 1: .*could not determine a constructor"),
        ("a: " + "9" * 5000, "digits"),
        ("model: {}\ndata: {}\ndata: {}", "line 1: one mapping has the key 'data' twice"),
        ("? {a: 1}\n: b", "unhashable"),
        ("a: b: c", "line 1: mapping values are not allowed"),
        ("[" * 1_000, "its values are nested too deeply"),
        ("".join(f"k{number}: 1\n" for number in range(2_000)) + "k7: 2", "the key 'k7' twice"),
    ],
)
def test_yaml_that_cannot_be_used(text: str, message: str):
    with pytest.raises(YamlError, match=message):
        load_yaml(text)


def test_a_message_shows_a_value_in_short():
    deep: list = []
    for _ in range(5_000):
        deep = [deep]
    for value in (deep, "x" * 10_000, 10**9000, {"a": ["y" * 1000] * 1000}):
        with pytest.raises(DataError) as raised:
            field({"id": value}, "id", dict if not isinstance(value, dict) else int, "entry 1")
        assert len(str(raised.value)) < 600


def test_coco_ids():
    ids = {
        "COCO_val2014_000000000042.jpg": 42,
        "folder/000000000042.jpg": 42,
        "COCO_val2014_x.jpg": "COCO_val2014_x",
        "1000268201_693b08cb0e.jpg": "1000268201_693b08cb0e",
    }
    assert {name: coco_id(name) for name in ids} == ids
