"""Data without splits, divided by a hash of the images' names: the same division in every format."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caption.data.readers import Coco, Csv, Flickr, JsonLines
from caption.data.readers.base import CaptionReader
from caption.data.splits import check_fractions, hashed_split
from caption.errors import DataError

NAMES = [f"{number}.jpg" for number in range(40)]
FRACTIONS = {"train": 0.5, "val": 0.25, "test": 0.25}


@pytest.fixture
def readers(tmp_path: Path) -> dict[str, CaptionReader]:
    """The same images in four formats."""
    for name in NAMES:
        (tmp_path / name).touch()
    coco = {
        "images": [{"id": number, "file_name": name} for number, name in enumerate(NAMES)],
        "annotations": [{"image_id": number, "caption": "A dog."} for number in range(len(NAMES))],
    }
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    (tmp_path / "tokens.txt").write_text("".join(f"{name}#0\tA dog.\n" for name in NAMES))
    (tmp_path / "own.csv").write_text("file_name,text\n" + "".join(f"{name},A dog.\n" for name in NAMES))
    lines = "".join(json.dumps({"file_name": name, "captions": ["A dog."]}) + "\n" for name in NAMES)
    (tmp_path / "own.jsonl").write_text(lines)
    folder = str(tmp_path)
    return {
        "coco": Coco(str(tmp_path / "coco.json"), folder, FRACTIONS),
        "flickr": Flickr(str(tmp_path / "tokens.txt"), None, folder, FRACTIONS),
        "csv": Csv(str(tmp_path / "own.csv"), fractions=FRACTIONS),
        "json lines": JsonLines(str(tmp_path / "own.jsonl"), fractions=FRACTIONS),
    }


def test_every_format_is_divided_alike(readers: dict[str, CaptionReader]):
    divisions = {
        name: {split: {image.path.name for image in images} for split, images in reader.read().items()}
        for name, reader in readers.items()
    }
    assert list(divisions["coco"]) == ["train", "val", "test"]
    assert {name for split in divisions["coco"].values() for name in split} == set(NAMES)
    assert all(division == divisions["coco"] for division in divisions.values())


def test_an_image_keeps_its_split_when_others_come(readers: dict[str, CaptionReader], tmp_path: Path):
    before = readers["flickr"].read()
    with (tmp_path / "tokens.txt").open("a") as file:
        for number in range(100, 110):
            (tmp_path / f"{number}.jpg").touch()
            file.write(f"{number}.jpg#0\tA cat.\n")
    after = readers["flickr"].read()
    assert all(
        {image.id for image in before[split]} <= {image.id for image in after[split]} for split in before
    )


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
    with pytest.raises(DataError, match="add up to 1"):
        Flickr(file, None, folder, {"train": 0.5}).read()


def test_these_images_have_always_been_in_these_splits() -> None:
    """Computed independently of the code: sha256sum's first 16 digits over 16**16. A change would move users'
    images."""
    places = {"a.jpg": 0.31487, "b.jpg": 0.47683, "c.jpg": 0.57305, "Füße.jpg": 0.69809}
    for name, place in places.items():
        assert hashed_split(name, {"train": place - 1e-4, "val": 2e-4, "test": 0.9999 - place}) == "val"
        assert hashed_split(name, {"train": place + 1e-4, "test": 0.9999 - place}) == "train"
        assert hashed_split(name, {"train": place - 1e-4, "test": 1.0001 - place}) == "test"
    assert {hashed_split(name, {"test": 1.0}) for name in places} == {"test"}


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ({"train": 0.8, "val": 0.1}, "add up to 1"),
        ({"train": 1.2, "val": -0.2}, "above 0"),
        ({}, "add up to 1"),
        ({"train": 0.5, "dev": 0.5}, "'dev' is not a split"),
    ],
)
def test_fractions_that_are_none(fractions: dict[str, float], message: str) -> None:
    check_fractions({"train": 0.3333333, "val": 0.3333333, "test": 0.3333334})
    with pytest.raises(DataError, match=message):
        check_fractions(fractions)
