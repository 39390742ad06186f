"""Reading text files: UTF-8, lines, JSON."""

from pathlib import Path

import pytest

from caption.data.files import entries, field, read_json, read_text, text_lines
from caption.errors import DataError


def test_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "captions.txt").write_text("a dog")
    assert read_text("~/captions.txt") == "a dog"


def test_text_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none\.txt' does not exist"):
        read_text(tmp_path / "none.txt")
    with pytest.raises(DataError, match="is a folder"):
        read_text(tmp_path)
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.txt' is not UTF-8 text \(byte 3\)"):
        read_text(tmp_path / "latin.txt")


def test_a_byte_order_mark_is_removed(tmp_path: Path) -> None:
    (tmp_path / "windows.txt").write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9\r\n")
    assert read_text(tmp_path / "windows.txt") == "café\r\n"


def test_lines_are_numbered_and_blank_ones_left_out(tmp_path: Path) -> None:
    """Unicode separators do not end a line."""
    (tmp_path / "lines.txt").write_bytes("a\u2028b\r\n \r\n\nc ".encode())
    assert list(text_lines(tmp_path / "lines.txt")) == [(1, "a\u2028b"), (4, "c ")]


def test_json_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "captions.json"
    file.write_text('{"images": [\n{"id": 1,}\n]}')
    with pytest.raises(DataError, match=r"captions\.json' is not JSON: .* in line 2"):
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
