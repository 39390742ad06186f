"""What holds of every reader: of five formats, of clean data and data with planted faults, for every command."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.small_data_sets import FORMATS, Data, Entry, clean, write
from PIL import Image

from caption.cli.main import run_verb
from caption.core.errors import DataError
from caption.core.runtime.trust import make
from caption.data.findings import Kind
from caption.data.readers.base import CaptionReader
from caption.data.readers.detect import reader_for
from caption.data.splits import Splits
from caption.metrics.caption_files import read_captions

# -- faults: each is planted in a data set, and returns the name in its finding --------------------------------

LONG = "a " * 60 + "dog"
Plant = Callable[[Data], "Entry | None"]


def missing(data: Data) -> Entry:
    entry = data.add("train")
    (data.images / entry.name).unlink()
    return entry


def truncated(data: Data) -> Entry:
    entry = data.add("val")
    file = data.images / entry.name
    file.write_bytes(file.read_bytes()[:-40])
    return entry


def captioned(split: str, *captions: str) -> Plant:
    """An image with these captions."""

    def plant(data: Data) -> Entry:
        entry = data.add(split)
        entry.captions = [*captions]
        return entry

    return plant


def listed_again(split: str, other: str) -> Plant:
    def plant(data: Data) -> Entry:
        entry = data.add(split)
        data.again(entry, other)
        return entry

    return plant


def copied(split: str, other: str, suffix: str = ".png") -> Plant:
    """The same pixels under another name, in another format if the suffix says so."""

    def plant(data: Data) -> Entry:
        entry, copy = data.add(split), data.add(other, suffix=suffix)
        with Image.open(data.images / entry.name) as image:
            image.save(data.images / copy.name)
        return entry

    return plant


def one_id(data: Data) -> Entry:
    entry, other = data.add("train"), data.add("train")
    other.id = entry.id
    return entry


def outside(data: Data) -> Entry:
    """A name that leads out of the folder of the images."""
    entry = data.add("train", ["A dog."])
    (data.images / entry.name).rename(data.folder / entry.name)
    entry.name = f"../{entry.name}"
    return entry


def malformed(data: Data) -> None:
    data.malformed += 1


@dataclass(frozen=True)
class Fault:
    """A fault that can be planted."""

    kind: str
    """The name of the fault in `caption check`."""
    what: str
    plant: Plant
    impossible: tuple[str, ...] = ()
    """The formats that cannot express it."""


TABLES = ("CSV", "JSON lines")
FAULTS = (
    Fault("missing image", "image file missing", missing),
    Fault("undecodable image", "image file truncated", truncated),
    Fault("empty caption", "caption of spaces", captioned("train", "A dog.", "  ")),
    Fault("empty caption", "caption of punctuation alone", captioned("test", "A dog.", "...")),
    Fault("image without captions", "image without captions", captioned("train"), ("CSV",)),
    Fault("image in two splits", "image in two splits", listed_again("train", "test")),
    Fault("image listed twice", "image listed twice in a split", listed_again("val", "val"), TABLES),
    Fault("id of two images", "two images with one id", one_id, ("Flickr", *TABLES)),
    Fault("malformed entry", "name of a file elsewhere", outside),
    Fault("malformed entry", "marks of another program", captioned("train", "<start> A dog. <end> <pad>")),
    Fault("malformed entry", "malformed entry", malformed),
    Fault("duplicate across splits", "copy of a file in another split", copied("train", "test")),
    Fault(
        "duplicate across splits", "same pixels, PNG and BMP, in two splits", copied("train", "val", ".bmp")
    ),
    Fault("duplicate within a split", "copy of a file in the same split (note)", copied("test", "test")),
    Fault("over-long caption", "caption of 61 words (note)", captioned("train", "A dog.", LONG)),
)


# -- findings --------------------------------------------------------------------------------------------------


def checked(arguments: list[str]) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `caption check`."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        code = run_verb("check", [*arguments, "--format", "json"])
    return code, json.loads(out.getvalue())


def names(finding: dict[str, Any], entry: Entry | None) -> bool:
    """Whether a finding names the faulty image."""
    if entry is None:
        return "line" in finding["text"] or "entry" in finding["text"]
    spelled = finding["text"] + "".join(finding["images"])
    return entry.name in spelled or f"image {entry.id}" in spelled


def found_by_format(folder: Path, copies: int = 2) -> Iterator[tuple[str, dict[str, tuple[int, int]], int]]:
    """For each format, with `copies` of every fault in one data set: (planted, found) by fault, and the number of false
    findings."""
    for format in FORMATS:
        data = clean(folder / format)
        faults = [fault for fault in FAULTS if format not in fault.impossible]
        planted = {fault: [fault.plant(data) for _ in range(copies)] for fault in faults}
        left = checked(write(data, format))[1]["findings"]
        counts = {}
        for fault, entries in planted.items():
            before = len(left)
            for entry in entries:
                hit = next((f for f in left if f["kind"] == fault.kind and names(f, entry)), None)
                left = [f for f in left if f is not hit]
            counts[fault.what] = (copies, before - len(left))
        yield format, counts, len(left)


# -- what holds of every reader --------------------------------------------------------------------------------

REPOSITORY = Path(__file__).parents[3]
PLANTABLE = [(format, fault) for format in FORMATS for fault in FAULTS if format not in fault.impossible]
BY_LOOKING = ("undecodable image", "duplicate across splits", "empty vocabulary")
"""Kinds of faults that need images decoded or words counted."""


def reader_of(data: Data, format: str) -> CaptionReader:
    write(data, format)
    return make(reader_for(str(data.folder), {}, {}), CaptionReader)  # type: ignore[type-abstract]


def contents(splits: Splits) -> dict[str, dict[str, tuple[str, ...]]]:
    return {split: {image.path.name: image.captions for image in images} for split, images in splits.items()}


def expected(data: Data) -> dict[str, dict[str, tuple[str, ...]]]:
    return {
        split: {entry.name: tuple(entry.captions) for entry in data.entries if entry.split == split}
        for split in ("train", "val", "test")
    }


@pytest.mark.parametrize("format", FORMATS)
def test_training_check_and_scoring_read_the_same(format: str, tmp_path: Path):
    data = clean(tmp_path)
    splits = reader_of(data, format).read()
    assert list(splits) == ["train", "val", "test"]
    assert contents(splits) == expected(data)
    assert all(image.path == data.images / image.path.name for images in splits.values() for image in images)
    ids = [entry.id if format in ("COCO", "Karpathy") else entry.name for entry in data.entries]
    assert [image.id for images in splits.values() for image in images] == ids
    code, report = checked(write(data, format))
    assert (code, report["findings"], report["complete"]) == (0, [], True)
    assert report["images"] == {"files": 12, "examined": 12}
    scored: dict[object, list[str]] = {}
    for file in sorted(tmp_path.iterdir()):
        if file.is_file() and "Images.txt" not in file.name:
            scored |= read_captions(str(file)).captions
    assert scored == {image.id: list(image.captions) for images in splits.values() for image in images}


@pytest.mark.parametrize("format", FORMATS)
def test_byte_order_mark_and_line_ends_of_windows(format: str, tmp_path: Path):
    """Only line ends end a line: Unicode has other separators, which may stand inside a caption."""
    data = clean(tmp_path)
    data.entries[0].captions[0] = "a red\u2028dog\x85 runs"
    write(data, format)
    for file in tmp_path.iterdir():
        if file.is_file():
            text = file.read_bytes().decode().replace("\r\n", "\n").replace("\n", "\r\n")
            file.write_bytes(b"\xef\xbb\xbf" + text.encode())
    reader = make(reader_for(str(tmp_path), {}, {}), CaptionReader)  # type: ignore[type-abstract]
    assert contents(reader.read()) == expected(data)


@pytest.mark.parametrize(
    ("format", "fault"), PLANTABLE, ids=[f"{format}, {fault.what}" for format, fault in PLANTABLE]
)
def test_a_planted_fault_is_found_and_nothing_else(format: str, fault: Fault, tmp_path: Path):
    """Training refuses it, and names the culprit, if it shows without decoding images or counting words."""
    data = clean(tmp_path)
    spoiled = fault.plant(data)
    reader = reader_of(data, format)
    code, report = checked(write(data, format))
    assert [finding["kind"] for finding in report["findings"]] == [fault.kind]
    finding = report["findings"][0]
    assert names(finding, spoiled)
    assert code == report["faults"] == int(next(kind.is_fault for kind in Kind if kind.label == fault.kind))
    if code and fault.kind not in BY_LOOKING and "punctuation" not in fault.what:
        with pytest.raises(DataError) as caught:
            reader.read()
        assert finding["text"] in str(caught.value)
    else:
        assert set(reader.read()) == {"train", "val", "test"}


def test_faults_do_not_hide_each_other_and_the_documented_list_has_their_kinds(tmp_path: Path):
    for format in FORMATS:
        (tmp_path / format).mkdir()
    for format, counts, invented in found_by_format(tmp_path, copies=3):
        assert {what: found for what, (_, found) in counts.items()} == dict.fromkeys(counts, 3), format
        assert invented == 0, format
    text = (REPOSITORY / "docs" / "data.md").read_text(encoding="utf-8")
    assert all(f"| {kind.label} |" in text for kind in Kind)


@pytest.mark.parametrize("format", FORMATS)
def test_no_training_split(format: str, tmp_path: Path):
    data = clean(tmp_path)
    data.entries = [entry for entry in data.entries if entry.split == "test"]
    code, report = checked(write(data, format))
    kinds = [finding["kind"] for finding in report["findings"]]
    assert (code, kinds) == (1, ["missing training split", "missing evaluation split"])
    assert report["vocabulary"] is report["splits"]["test"]["unknown_rate"] is None


@pytest.mark.parametrize("format", FORMATS)
def test_files_that_are_not_text(format: str, tmp_path: Path):
    reader = reader_of(clean(tmp_path), format)
    for file in [path for path in tmp_path.iterdir() if path.is_file()]:
        file.write_bytes(b"caf\xe9")
    with pytest.raises(DataError, match=rf"{tmp_path}.*is not UTF-8 text \(byte 3\)"):
        reader.read()


@pytest.mark.parametrize("format", FORMATS)
def test_paths_start_from_the_current_folder_or_the_home(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "own").mkdir()
    write(data := clean(tmp_path / "own"), format)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder, images in (("own", Path("own/images")), ("~/own", data.images)):
        spec = json.loads(json.dumps(reader_for("own", {}, {})).replace('"own', f'"{folder}'))
        splits = make(spec, CaptionReader).read()  # type: ignore[type-abstract]
        assert splits["train"][0].path == images / data.entries[0].name
