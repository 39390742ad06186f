"""Object boxes of COCO instances files."""

import json
from pathlib import Path
from typing import Any

import pytest

from caption.analysis.pointing_game import find_mentions
from caption.data.boxes import read_boxes
from caption.data.shapes import write_shapes
from caption.errors import DataError

CONTENT: dict[str, Any] = {
    "images": [{"id": 5}, {"id": 6}],
    "categories": [{"id": 1, "name": "dog"}, {"id": 3, "name": "cat"}],
    "annotations": [
        {"id": 1, "image_id": 5, "category_id": 3, "bbox": [10, 20, 30.5, 40], "iscrowd": 0},
        {"id": 2, "image_id": 5, "category_id": 3, "bbox": [0, 0, 2, 1], "iscrowd": 1},
    ],
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "objects.json"
    path.write_text(json.dumps({**CONTENT, **changes}))
    return path


def test_every_image_has_every_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    boxes = read_boxes(written(tmp_path))
    assert {image: {name: list(b) for name, b in of.items()} for image, of in boxes.items()} == {
        5: {"dog": [], "cat": [(10, 20, 40.5, 60), (0, 0, 2, 1)]},
        6: {"dog": [], "cat": []},
    }
    assert capsys.readouterr().out == ""


def test_captions_are_not_boxes(tmp_path: Path) -> None:
    (tmp_path / "captions.json").write_text('{"annotations": [], "images": []}')
    with pytest.raises(DataError, match=r"captions\.json' has no list of objects called 'categories'"):
        read_boxes(tmp_path / "captions.json")


def test_reads_shapes(tmp_path: Path) -> None:
    write_shapes(tmp_path, 1, 3, 1)
    boxes = read_boxes(tmp_path / "val_objects.json")
    captions = json.loads((tmp_path / "val.json").read_text())
    assert list(boxes) == [image["id"] for image in captions["images"]]
    for entry in captions["annotations"]:
        mentions = find_mentions(entry["caption"].split(), boxes[entry["image_id"]])
        assert len(mentions) in (2, 3)
        assert all(len(mention.boxes) == 1 for mention in mentions)


@pytest.mark.parametrize(
    "wrong", [{"category_id": 2}, {"image_id": 9}, {"bbox": [1, 2, 3]}, {"bbox": None}, {"bbox": "abcd"}]
)
def test_a_wrong_annotation_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    annotation = {**CONTENT["annotations"][0], **wrong}
    with pytest.raises(DataError, match="is not a COCO instances file"):
        read_boxes(written(tmp_path, annotations=[annotation]))
