"""Data without splits, divided by a hash of the images' names: the same division in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caption.core.errors import DataError
from caption.data.readers import Coco, Csv, Flickr, JsonLines
from caption.data.splits import check_fractions, hashed_split

NAMES = [f"{number}.jpg" for number in range(40)]
FRACTIONS = {"train": 0.5, "val": 0.25, "test": 0.25}


def test_every_format_is_divided_alike(tmp_path: Path):
    for name in NAMES:
        (tmp_path / name).touch()
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    annotations = [{"image_id": number, "caption": "A dog."} for number in range(len(NAMES))]
    lines = [json.dumps({"file_name": name, "captions": ["A dog."]}) for name in NAMES]
    for file, text in {
        "coco.json": json.dumps({"images": images, "annotations": annotations}),
        "tokens.txt": "\n".join(f"{name}#0\tA dog." for name in NAMES),
        "own.csv": "\n".join(["file_name,text", *(f"{name},A dog." for name in NAMES)]),
        "own.jsonl": "\n".join(lines),
    }.items():
        (tmp_path / file).write_text(text)
    expected = {
        split: {name for name in NAMES if hashed_split(name, FRACTIONS) == split} for split in FRACTIONS
    }
    assert all(expected.values())
    for reader in (
        Coco(str(tmp_path / "coco.json"), str(tmp_path), FRACTIONS),
        Flickr(str(tmp_path / "tokens.txt"), None, str(tmp_path), FRACTIONS),
        Csv(str(tmp_path / "own.csv"), fractions=FRACTIONS),
        JsonLines(str(tmp_path / "own.jsonl"), fractions=FRACTIONS),
    ):
        splits = reader.read()
        assert list(splits) == ["train", "val", "test"]
        found = {split: {image.path.name for image in images} for split, images in splits.items()}
        assert found == expected, reader


def test_what_does_not_fit_together(tmp_path: Path):
    file, folder = str(tmp_path / "coco.json"), str(tmp_path)
    for reader in (
        Coco({"train": file}, {"train": folder}, FRACTIONS),
        Coco(file, {"train": folder}),
        Coco({"train": file}, folder),
    ):
        with pytest.raises(DataError, match="one file and one folder"):
            reader.read()
    for reader in (Flickr(file, {"train": file}, folder, FRACTIONS), Flickr(file, None, folder)):
        with pytest.raises(DataError, match="one of the two"):
            reader.read()


def test_these_images_have_always_been_in_these_splits():
    """Computed independently of the code: sha256sum's first 16 digits over 16**16. A change would move users'
    images."""
    places = {"a.jpg": 0.31487, "b.jpg": 0.47683, "c.jpg": 0.57305, "Füße.jpg": 0.69809}
    for name, place in places.items():
        assert hashed_split(name, {"train": place - 1e-4, "val": 2e-4, "test": 0.9999 - place}) == "val"
        assert hashed_split(name, {"train": place + 1e-4, "test": 0.9999 - place}) == "train"
        assert hashed_split(name, {"train": place - 1e-4, "test": 1.0001 - place}) == "test"
    assert {hashed_split(name, {"test": 1.0}) for name in places} == {"test"}


def test_fractions_that_are_none():
    check_fractions({"train": 0.3333333, "val": 0.3333333, "test": 0.3333334})
    for fractions, message in (
        ({"train": 0.8, "val": 0.1}, "add up to 1"),
        ({"train": 1.2, "val": -0.2}, "above 0"),
        ({}, "add up to 1"),
        ({"train": 0.5, "dev": 0.5}, "'dev' is not a split"),
    ):
        with pytest.raises(DataError, match=message):
            check_fractions(fractions)
