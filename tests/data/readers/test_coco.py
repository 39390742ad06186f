"""COCO captions JSON: what other formats do not have."""

import json
from pathlib import Path
from typing import Any

import pytest

from caption.core.errors import DataError
from caption.data.findings import Findings, Kind
from caption.data.readers.coco import Coco


def content() -> dict[str, Any]:
    """Two images; the captions of the first are not adjacent."""
    return {
        "info": {},
        "images": [{"id": 42, "file_name": "a.jpg"}, {"id": 7, "file_name": "b.jpg"}],
        "annotations": [
            {"id": 1, "image_id": 42, "caption": "A dog runs.\n"},
            {"id": 2, "image_id": 7, "caption": "Une fille à la plage"},
            {"id": 3, "image_id": 42, "caption": "  The dog runs. "},
        ],
    }


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("a.jpg", "b.jpg", "c.jpg"):
        (folder / name).touch()
    return folder


def written(folder: Path, data: object) -> str:
    (folder / "train.json").write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
    return str(folder / "train.json")


def test_captions_are_joined_in_the_order_of_the_images(images: Path, capsys: pytest.CaptureFixture[str]):
    splits = Coco({"val": written(images.parent, content())}, {"val": str(images)}).read()
    assert [(image.id, image.path, image.captions) for image in splits["val"]] == [
        (42, images / "a.jpg", ("A dog runs.", "The dog runs.")),
        (7, images / "b.jpg", ("Une fille à la plage",)),
    ]
    assert capsys.readouterr().out == ""  # stdout is for results


def test_rejected_captions_of_vizwiz_are_noted(images: Path):
    data = content()
    data["annotations"][1] |= {"is_rejected": True, "is_precanned": False}
    data["annotations"][0]["is_rejected"] = False
    findings = Findings()
    Coco({"val": written(images.parent, data)}, {"val": str(images)}).survey(findings)
    assert [(finding.kind, finding.images) for finding in findings] == [
        (Kind.REJECTED, (str(images / "b.jpg"),))
    ]


def test_files_of_another_kind(images: Path):
    for data, message in (
        ({"annotations": []}, "'images'"),
        ([{"image_id": 1, "caption": "a dog"}], "no list of objects called"),
        (
            content() | {"annotations": [{"id": 1, "image_id": 42, "bbox": [0, 0, 1, 1]}]},
            "boxes, not captions",
        ),
        ({"images": [], "annotations": []}, "1 empty split in"),
    ):
        with pytest.raises(DataError, match=rf"train\.json.*{message}|{message}.*train\.json"):
            Coco({"train": written(images.parent, data)}, {"train": str(images)}).read()


def test_all_faults_are_found_and_the_rest_is_read(images: Path):
    """Captions of an image with a wrong entry are not reported as faults."""
    data = content()
    data["images"] += [{"id": 8, "file_name": " "}, {"id": 42, "file_name": "c.jpg"}, {"file_name": "c.jpg"}]
    data["annotations"] += [
        {"id": 4, "image_id": 8, "caption": "a cat"},
        {"id": 5, "image_id": 9, "caption": "a cat"},
        {"id": 6, "image_id": 42, "caption": " "},
        {"id": 7, "image_id": 42},
        {"id": 8, "image_id": 42.5, "caption": "a cat"},
        {"id": 9, "image_id": 42, "caption": 3},
    ]
    findings = Findings()
    splits = Coco({"train": written(images.parent, data)}, {"train": str(images)}).survey(findings)
    assert [(image.id, image.path.name, len(image.captions)) for image in splits["train"]] == [
        (42, "a.jpg", 2),
        (7, "b.jpg", 1),
    ]
    assert [(finding.kind.label, finding.text.partition(" in ")[0]) for finding in findings] == [
        ("malformed entry", "entry 4 of 'images'"),
        *(("malformed entry", f"entry {number} of 'annotations'") for number in (4, 6, 7, 8)),
        ("malformed entry", "entry 2 of 'images'"),
        ("id of two images", f"image 42 is both '{images / 'a.jpg'}' and, by entry 3 of 'images'"),
        ("empty caption", "entry 5 of 'annotations'"),
    ]
    assert "belongs to image 9, which is not in 'images'" in findings[1].text
    assert "(a.jpg)" in findings[-1].text


@pytest.mark.parametrize("kind", [str, float])
def test_numbers_texts_and_what_pandas_makes_of_them_are_one_id(images: Path, kind: type):
    data = content()
    data["images"] = [{**image, "id": kind(image["id"])} for image in data["images"]]
    data["images"] += data["images"][:1]  # twice is once
    splits = Coco({"val": written(images.parent, data)}, {"val": str(images)}).read()
    expected = [("42", ("A dog runs.", "The dog runs.")), ("7", ("Une fille à la plage",))]
    assert [(str(image.id), image.captions) for image in splits["val"]] == expected
