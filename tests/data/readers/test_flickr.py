"""Flickr8k's token file and split lists: what other formats do not have."""

from pathlib import Path

import pytest

from caption.core.errors import DataError
from caption.data.findings import Findings, Kind
from caption.data.readers.flickr import Flickr

TOKENS = (
    "a.jpg#0\tA dog runs .\n"
    "a.jpg#1\t The dog\u2028is  quick . \n"
    "b.jpg#0\tA cat\tsits .\n"
    "no#1.jpg#0\tA name with the mark .\n"
    "c.jpg#0\tIn no split .\n"
    "c.jpg.1#0\tThe odd name of the published file .\n"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.jpg", "b.jpg", "c.jpg", "no#1.jpg"):
        (tmp_path / name).touch()
    return tmp_path


def reader(folder: Path, tokens: str = TOKENS, **lists: str) -> Flickr:
    contents = {"tokens.txt": tokens} | {f"{split}.txt": names for split, names in lists.items()}
    for name, content in contents.items():
        (folder / name).write_bytes(content.encode())
    splits = {split: str(folder / f"{split}.txt") for split in lists}
    return Flickr(str(folder / "tokens.txt"), splits, str(folder))


def test_lists_give_the_splits_and_the_order(folder: Path):
    """Unicode separators do not end a line, and only the first tab and the last mark end the name."""
    splits = reader(folder, train="b.jpg\na.jpg  \n\n", test="no#1.jpg").read()
    assert {
        split: [(image.id, image.path, image.captions) for image in images]
        for split, images in splits.items()
    } == {
        "train": [
            ("b.jpg", folder / "b.jpg", ("A cat\tsits .",)),
            ("a.jpg", folder / "a.jpg", ("A dog runs .", "The dog\u2028is  quick .")),
        ],
        "test": [("no#1.jpg", folder / "no#1.jpg", ("A name with the mark .",))],
    }


def test_lists_may_spell_names_in_another_way(folder: Path):
    splits = reader(folder, train="a.jpg\n./b.jpg\n").read()
    assert [(image.id, len(image.captions)) for image in splits["train"]] == [("a.jpg", 2), ("b.jpg", 1)]


def test_all_faults_are_found_and_the_rest_is_read(folder: Path):
    tokens = TOKENS + "\nd.jpg#0 no tab\na.jpg#2\t \nb.jpg#x\tno number\n#0\tno name\n"
    flickr = reader(folder, tokens, train="a.jpg\nc.jpg", val="b.jpg")
    (folder / "val.txt").unlink()
    findings = Findings()
    splits = flickr.survey(findings)
    assert {
        split: {image.id: len(image.captions) for image in images} for split, images in splits.items()
    } == {"train": {"a.jpg": 2, "c.jpg": 1}}
    assert [finding.kind for finding in findings] == [*[Kind.MALFORMED] * 4, Kind.EMPTY]
    places = [finding.text.partition(" of ")[0] for finding in findings]
    assert [*places[:3], places[4]] == ["line 8", "line 10", "line 11", "line 9"]
    assert "val.txt' does not exist" in findings[3].text


def test_lists_that_do_not_fit(folder: Path):
    for lists, message in (
        ({"train": "a.jpg", "val": "\n"}, "1 empty split in"),
        ({}, "no split"),
        ({"dev": "a.jpg"}, "'dev' is not a split"),
        ({"train": "a.jpg\nd.jpg\n"}, r"image 'd\.jpg' \(train\)"),
    ):
        with pytest.raises(DataError, match=message):
            reader(folder, **lists).read()
