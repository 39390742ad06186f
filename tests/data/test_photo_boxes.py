"""Boxes of the objects in photos, by the words for them: this package's own files, and COCO's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from caption.core.errors import UserError
from caption.data import text_files
from caption.data.photo_boxes import read_photo_boxes
from caption.text.english import coco_words, plural, read_table

OWN = {
    "a.png": {"size": [60, 40], "objects": [{"kind": "person", "names": ["boy", "kid"], "box": [0, 0, 9, 9]}]}
}
INSTANCES: dict[str, Any] = {
    "images": [
        {"id": 1, "file_name": "a.png", "width": 60, "height": 40},
        {"id": 2, "file_name": "val/b.png", "width": 60, "height": 40},
        {"id": 3, "file_name": "elsewhere.png", "width": 60, "height": 40},
    ],
    "categories": [
        {"id": 1, "name": "person", "supercategory": "person"},
        {"id": 18, "name": "dog", "supercategory": "animal"},
    ],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "iscrowd": 0},
        {"id": 2, "image_id": 2, "category_id": 18, "bbox": [5, 5, 5, 5], "iscrowd": 0},
        {"id": 3, "image_id": 2, "category_id": 1, "bbox": [5, 5, 5, 5], "iscrowd": 1},
    ],
}


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    for name in ("a.png", "b.png", "c.png"):
        Image.fromarray(np.zeros((40, 60, 3), np.uint8)).save(tmp_path / name)
    return [tmp_path / name for name in ("a.png", "b.png", "c.png")]


def written(folder: Path, content: Any) -> Path:
    (folder / "boxes.json").write_text(json.dumps(content))
    return folder / "boxes.json"


def test_own_files(tmp_path: Path, photos: list[Path]):
    (boxed,) = read_photo_boxes([written(tmp_path, OWN)], photos).boxed
    place = [0, 0, 9, 9]
    assert boxed == (
        photos[0], {"boy": [place], "kid": [place]}, {"boy": "person", "kid": "person"}, None
    )  # fmt: skip


def test_categories_become_words(tmp_path: Path, photos: list[Path], monkeypatch: pytest.MonkeyPatch):
    """The file is parsed once: COCO's has 450 MB."""
    parsed: list[str] = []
    monkeypatch.setattr(text_files, "load_json", lambda text: parsed.append(text) or json.loads(text))
    found = read_photo_boxes([written(tmp_path, INSTANCES)], photos)
    assert len(parsed) == 1
    assert [photo.path.name for photo in found.boxed] == ["a.png", "b.png"]
    first, second = (photo.boxes for photo in found.boxed)
    assert list(first["woman"]) == list(first["people"]) == [(1, 2, 4, 6)]
    assert list(first["dog"]) == []  # annotated, and not shown
    assert list(second["puppies"]) == [(5, 5, 10, 10)]
    assert "man" not in second  # a crowd
    assert found.boxed[0].kinds["puppy"] == "animal"
    assert found.missing == ["elsewhere.png"]
    assert list(found.words) == ["person", "dog"]
    assert [photo.shown for photo in found.boxed] == [{"person"}, {"person", "dog"}]
    some = read_photo_boxes([written(tmp_path, {**INSTANCES, "all": [2]})], photos)
    assert [photo.shown for photo in some.boxed] == [None, {"person", "dog"}]


def with_box(*box: object) -> dict[str, Any]:
    return {"a.png": {"size": [60, 40], "objects": [{"kind": "x", "names": ["y"], "box": box}]}}


def in_coco(*bbox: float) -> dict[str, Any]:
    """COCO's content with another box for the object in a.png."""
    first, *others = INSTANCES["annotations"]
    return {**INSTANCES, "annotations": [{**first, "bbox": bbox}, *others[1:]]}


MISTAKES: dict[str, tuple[Any, str]] = {
    "other photos": ({"z.png": OWN["a.png"]}, r"has boxes of z\.png, but no photo has such a name"),
    "size": ({"a.png": {**OWN["a.png"], "size": [40, 60]}}, "drawn on 40x60: .*EXIF orientation: turn them, too"),
    "size of COCO": (
        {**INSTANCES, "images": [{**entry, "width": 6} for entry in INSTANCES["images"]]}, "drawn on 6x40"
    ),
    "no names": ({**INSTANCES, "images": [{"id": 1}, {"id": 2}]}, "image 1 of .* has no valid 'file_name'"),
    "captions": ({"annotations": []}, r"has no boxes: give COCO's instances_\*\.json"),
    "not a list": ({**INSTANCES, "all": 2}, '"all", if present, is a list'),
    "no area": (with_box(9, 9, 9, 12), "write left, top, right, bottom"),
    "outside": (with_box(70, 0, 90, 9), r"the box \[70, 0, 90, 9\] lies outside of the photo, 60 x 40 pixels"),
    "reversed": (with_box(50, 30, 9, 9), "has no area, or is x, y, width, height"),
    "fractions": (with_box(0.1, 0.2, 0.5, 0.9), "looks like fractions of the photo's width and height"),
    "to 1000": (with_box(10, 20, 900, 1000), "reaches beyond .* may be in coordinates from 0 to 1000"),
    "a larger photo": (with_box(10, 20, 3000, 2000), "may be for a photo of another size"),
    "corners in COCO": (in_coco(30, 20, 50, 39), r"may be .*In COCO's files a bbox is \[x, y, width, height\]"),
    "no area in COCO": (in_coco(30, 20, 5, 0), "has no area"),
    "NaN in COCO": (in_coco(30, 20, 5, float("nan")), "is not a COCO instances file"),
    "inf": (with_box(0, 0, float("inf"), 9), "not 4 numbers"),
    "bool": (with_box(True, 0, 9, 9), "not 4 numbers"),
    "twice": ({**INSTANCES, "images": [*INSTANCES["images"], {"id": 1, "file_name": "c.png"}]}, "4 entries have 3"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MISTAKES)
def test_mistakes_are_named(tmp_path: Path, photos: list[Path], kind: str):
    content, said = MISTAKES[kind]
    with pytest.raises(UserError, match=said):
        read_photo_boxes([written(tmp_path, content)], photos)


def test_a_name_that_two_photos_have_is_refused(tmp_path: Path, photos: list[Path]):
    with pytest.raises(UserError, match=r"two photos are called a\.png"):
        read_photo_boxes([written(tmp_path, OWN)], [*photos, tmp_path / "more" / "a.png"])


def test_two_photos_of_one_name_in_a_file_are_refused(tmp_path: Path, photos: list[Path]):
    """The boxes of one of them would be taken for those of the other."""
    entry = {"id": 4, "file_name": "train/b.png", "width": 60, "height": 40}
    content = {**INSTANCES, "images": [*INSTANCES["images"], entry]}
    with pytest.raises(UserError, match=r"boxes\.json' has two photos called b\.png"):
        read_photo_boxes([written(tmp_path, content)], photos)


def test_words_of_categories():
    for category, words in {
        "knife": {"knife", "knives"},
        "couch": {"couch", "couches", "sofa", "sofas"},
        "person": {"person", "people", "man", "men", "child", "children", "baby", "babies", "woman", "women"},
        "traffic_light": {"traffic light", "traffic lights", "stoplight"},
        "own thing": {"own thing", "own things"},
    }.items():
        assert words <= set(coco_words(category))
    assert plural("toy") == "toys"
    assert [plural("wife"), plural("doberman"), plural("fireman")] == ["wives", "dobermans", "firemen"]
    words = [word for row in read_table("coco_words.tsv") for word in coco_words(row["category"])]
    assert len(words) == len(set(words))  # no word stands for two categories
