"""The record of an image with captions, and what readers of files share."""

import json
from pathlib import Path

import jsonargparse
import pytest

from caption.data.readers.captions import (
    CaptionReader,
    Splits,
    entries,
    enumerated,
    field,
    located,
    read_json,
    read_text,
    text_lines,
)
from caption.data.readers.findings import Findings
from caption.errors import DataError


class Strict(CaptionReader):
    """A reader that knows only how to refuse."""

    def read(self) -> Splits:
        raise DataError("there is a fault")


def test_a_reader_that_cannot_go_on_says_so_when_surveyed() -> None:
    with pytest.raises(DataError, match="there is a fault"):
        Strict().survey(Findings())
    assert Strict().boxes("train") is None


def test_enumeration() -> None:
    assert enumerated(["a"]) == "a"
    assert enumerated(["a", "b", "c"]) == "a, b, c"
    assert enumerated(list("abcdefg")) == "a, b, c and 4 more"


def test_home_folder_and_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert located("~/images") == tmp_path / "images"
    assert located("images") == Path("images")


def test_text_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt' does not exist"):
        read_text(tmp_path / "none.txt")
    with pytest.raises(DataError, match="is a folder"):
        read_text(tmp_path)
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.txt' is no UTF-8 text \(byte 3\)"):
        read_text(tmp_path / "latin.txt")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "windows.txt").write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9\r\n")
    assert read_text(tmp_path / "windows.txt") == "café\r\n"


def test_lines_are_numbered_and_blank_ones_left_out(tmp_path: Path) -> None:
    """A separator of Unicode ends no line."""
    (tmp_path / "lines.txt").write_bytes("a\u2028b\r\n \r\n\nc ".encode())
    assert list(text_lines(tmp_path / "lines.txt")) == [(1, "a\u2028b"), (4, "c ")]


def test_json_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "captions.json"
    file.write_text('{"images": [\n{"id": 1,}\n]}')
    with pytest.raises(DataError, match=r"captions\.json' is no JSON: .* in line 2"):
        read_json(file)
    file.write_text("[1, 2]")
    with pytest.raises(DataError, match="holds a JSON list, not an object"):
        read_json(file)


@pytest.mark.parametrize("data", [{}, {"images": None}, {"images": {"a": 1}}, {"images": [1]}])
def test_lists_that_are_none(data: dict[str, object]) -> None:
    with pytest.raises(DataError, match=r"'f\.json' has no list of objects called 'images'"):
        entries(data, "images", "'f.json'")


def test_fields_of_the_wrong_type() -> None:
    assert field({"id": 3}, "id", int, "entry 0") == 3
    for entry in ({}, {"id": "3"}, {"id": None}):
        with pytest.raises(DataError, match="entry 0 has no valid 'id'"):
            field(entry, "id", int, "entry 0")


@pytest.mark.parametrize(
    ("reader", "arguments"),
    [
        ("coco.Coco", {"captions": {"train": "t.json"}, "images": {"train": "images"}}),
        ("karpathy.Karpathy", {"file": "dataset.json", "images": "images", "restval": False}),
        ("flickr.Flickr", {"captions": "token.txt", "splits": {"train": "t.txt"}, "images": "images"}),
        (
            "tables_csv.Csv",
            {
                "file": "own.csv",
                "images": "photos",
                "image_column": "file",
                "caption_column": "text",
                "split_column": "part",
                "delimiter": ";",
                "fractions": {"train": 0.9, "val": 0.1},
            },
        ),
        (
            "tables_jsonl.JsonLines",
            {
                "file": "own.jsonl",
                "images": None,
                "image_key": "file",
                "caption_key": "text",
                "split_key": "part",
                "fractions": None,
            },
        ),
    ],
)
def test_a_configuration_file_can_name_a_reader(reader: str, arguments: dict[str, object]) -> None:
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--reader", type=CaptionReader)
    text = json.dumps({"reader": {"class_path": f"caption.data.{reader}", "init_args": arguments}})
    config = parser.parse_string(text)  # JSON is YAML
    instantiate = getattr(parser, "instantiate", None) or parser.instantiate_classes  # its name before 4.49
    assert vars(instantiate(config).reader) == arguments
