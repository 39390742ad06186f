"""Karpathy's dataset_*.json."""

import json
from pathlib import Path
from typing import Any

import pytest

from caption.data.readers.captions import Findings
from caption.data.readers.karpathy import Karpathy
from caption.errors import DataError


def entry(name: str, split: str, *captions: str, **more: object) -> dict[str, Any]:
    sentences = [{"raw": caption, "tokens": []} for caption in captions or ("A dog.",)]
    return {"filename": name, "split": split, "sentences": sentences, **more}


COCO = [
    entry("a.jpg", "test", "A dog. ", "One dog.\n", filepath="val2014", cocoid=10),
    entry("b.jpg", "train", filepath="train2014", cocoid=11),
    entry("c.jpg", "restval", filepath="val2014", cocoid=12),
    entry("d.jpg", "val", filepath="val2014", cocoid=13),
]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """The images in COCO's layout, and in one folder as in Flickr8k."""
    for name, folder in zip("abcd", ["val2014", "train2014", "val2014", "val2014"], strict=True):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / f"{name}.jpg").touch()
        (tmp_path / f"{name}.jpg").touch()
    return tmp_path


def reader(images: Path, entries: list[dict[str, Any]], **options: bool) -> Karpathy:
    (images / "dataset.json").write_text(json.dumps({"images": entries, "dataset": "coco"}))
    return Karpathy(str(images / "dataset.json"), str(images), **options)


def refused(images: Path, *entries: dict[str, Any]) -> str:
    with pytest.raises(DataError) as caught:
        reader(images, list(entries)).read()
    assert "dataset.json" in str(caught.value)
    return str(caught.value)


def test_coco(images: Path) -> None:
    splits = reader(images, COCO).read()
    assert list(splits) == ["train", "val", "test"]
    assert {split: [image.id for image in found] for split, found in splits.items()} == {
        "train": [11, 12],
        "val": [13],
        "test": [10],
    }
    assert splits["test"][0].path == images / "val2014" / "a.jpg"
    assert splits["test"][0].captions == ("A dog.", "One dog.")


def test_restval_can_stay_out(images: Path) -> None:
    splits = reader(images, COCO, restval=False).read()
    assert [image.id for image in splits["train"]] == [11]


def test_flickr_has_neither_folders_nor_ids(images: Path) -> None:
    splits = reader(images, [entry("a.jpg", "train"), entry("b.jpg", "val")]).read()
    assert (splits["train"][0].id, splits["train"][0].path) == ("a.jpg", images / "a.jpg")
    assert list(splits) == ["train", "val"]


def test_an_unknown_split(images: Path) -> None:
    assert "entry 1 of 'images'" in refused(images, entry("a.jpg", "train"), entry("b.jpg", "dev"))


def test_a_missing_image_and_a_missing_folder(images: Path) -> None:
    assert "z.jpg" in refused(images, entry("a.jpg", "train"), entry("z.jpg", "val"))
    assert "test2014" in refused(images, entry("a.jpg", "train", filepath="test2014"))


def test_an_image_in_two_splits(images: Path) -> None:
    assert "'train' and 'val'" in refused(images, entry("a.jpg", "train"), entry("a.jpg", "val"))


def test_nothing_in_it(images: Path) -> None:
    assert "no split" in refused(images)


@pytest.mark.parametrize(
    "fault",
    [
        {"filename": None},
        {"split": None},
        {"sentences": None},
        {"sentences": []},
        {"sentences": [{"tokens": ["a"]}]},
        {"sentences": [{"raw": " "}]},
        {"cocoid": "7"},
        {"filepath": 7},
    ],
)
def test_malformed_entries(images: Path, fault: dict[str, object]) -> None:
    refused(images, entry("b.jpg", "val"), entry("a.jpg", "train") | fault)


def test_all_faults_are_found_and_the_rest_is_read(images: Path) -> None:
    entries = [
        entry("a.jpg", "train", "A dog.", " "),
        entry("b.jpg", "dev"),
        entry("c.jpg", "train") | {"filename": None},
        entry("d.jpg", "val") | {"sentences": [{"tokens": []}, {"raw": "A cat."}]},
    ]
    findings = Findings()
    splits = reader(images, entries).survey(findings)
    assert {split: [i.captions for i in found] for split, found in splits.items()} == {
        "train": [("A dog.",)],
        "val": [("A cat.",)],
    }
    found = [(finding.kind.label, finding.text) for finding in findings.found]
    assert [kind for kind, _ in found] == ["empty caption", *["malformed entry"] * 3]
    places = ["sentence 2 of entry 0", "entry 1", "entry 2", "sentence 1 of entry 3"]
    assert all(text.startswith(place) for (_, text), place in zip(found, places, strict=True))
