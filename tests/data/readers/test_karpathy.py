"""Karpathy's dataset_*.json: what other formats do not have."""

import json
from pathlib import Path
from typing import Any

import pytest

from caption.core.errors import DataError
from caption.data.findings import Findings
from caption.data.readers.karpathy import Karpathy


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


def test_coco_has_ids_folders_and_a_rest_of_its_validation_split(images: Path):
    splits = reader(images, COCO).read()
    ids = {split: [image.id for image in members] for split, members in splits.items()}
    assert ids == {"train": [11, 12], "val": [13], "test": [10]}
    assert list(ids) == ["train", "val", "test"]
    assert splits["test"][0].path == images / "val2014" / "a.jpg"
    assert splits["test"][0].captions == ("A dog.", "One dog.")
    assert [image.id for image in reader(images, COCO, restval=False).read()["train"]] == [11]


def test_flickr_has_neither_folders_nor_ids(images: Path):
    splits = reader(images, [entry("a.jpg", "train"), entry("b.jpg", "val")]).read()
    assert (splits["train"][0].id, splits["train"][0].path) == ("a.jpg", images / "a.jpg")
    assert list(splits) == ["train", "val"]
    with pytest.raises(DataError, match=r"no split to read in '.*dataset\.json'"):
        reader(images, []).read()


def test_all_faults_are_found_and_the_rest_is_read(images: Path):
    entries = [
        entry("a.jpg", "train", "A dog.", " "),
        entry("b.jpg", "dev"),
        entry("c.jpg", "train") | {"filename": None},
        entry("d.jpg", "val") | {"sentences": [{"tokens": []}, {"raw": "A cat."}]},
        *(
            entry("d.jpg", "val") | wrong
            for wrong in ({"sentences": None}, {"split": None}, {"cocoid": "7"}, {"filepath": 7})
        ),
    ]
    findings = Findings()
    splits = reader(images, entries).survey(findings)
    assert {split: [image.captions for image in members] for split, members in splits.items()} == {
        "train": [("A dog.",)],
        "val": [("A cat.",)],
    }
    malformed = ["entry 2", "sentence 1 of entry 3", *(f"entry {n}" for n in (4, 5, 6, 7, 1))]
    places = [*malformed, "caption 2 of entry 0"]
    kinds = [*["malformed entry"] * 7, "empty caption"]
    assert [finding.kind.label for finding in findings] == kinds
    assert [finding.text.partition(" of 'images'")[0] for finding in findings] == places
    findings = Findings()
    assert reader(images, entries[2:3]).survey(findings) == {}  # which is not a second fault
    assert len(findings) == 1
