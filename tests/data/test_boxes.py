"""Object boxes of COCO instances files."""

import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pycocotools import mask

from caption.core.errors import DataError
from caption.data.boxes import ObjectMask, _rle_fault, read_boxes

CONTENT: dict[str, Any] = {
    "images": [{"id": 5}, {"id": 6}],
    "categories": [{"id": 1, "name": "dog"}, {"id": 3, "name": "cat"}],
    "annotations": [
        {"id": 1, "image_id": 5, "category_id": 3, "bbox": [10, 20, 30.5, 40], "iscrowd": 0},
        {"id": 2, "image_id": 5, "category_id": 3, "bbox": [0, 0, 2, 1], "iscrowd": 0},
    ],
}


def written(folder: Path, **changes: Any) -> Path:
    path = folder / "objects.json"
    path.write_text(json.dumps({**CONTENT, **changes}))
    return path


def test_every_image_has_every_name_but_those_of_a_crowd(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A cat of the crowd would be as right as the cat beside it."""
    boxes = read_boxes(written(tmp_path))
    assert {image: {name: list(b) for name, b in of.items()} for image, of in boxes.items()} == {
        5: {"dog": [], "cat": [(10, 20, 40.5, 60), (0, 0, 2, 1)]},
        6: {"dog": [], "cat": []},
    }
    assert capsys.readouterr().out == ""
    one, other = CONTENT["annotations"]
    dog = {**one, "id": 3, "category_id": 1}
    boxes = read_boxes(written(tmp_path, annotations=[one, {**other, "iscrowd": 1}, dog]))
    assert {name: list(several) for name, several in boxes[5].items()} == {"dog": [(10, 20, 40.5, 60)]}


SIZED = [{"id": 5, "height": 6, "width": 8}, {"id": 6}]
TRIANGLE = [0, 0, 8, 0, 0, 6]


def segmented(folder: Path, segmentation: Any) -> ObjectMask:
    annotation = {**CONTENT["annotations"][0], "segmentation": segmentation}
    (cat,) = read_boxes(written(folder, images=SIZED, annotations=[annotation]))[5]["cat"]
    assert isinstance(cat, ObjectMask)
    return cat


def test_polygons_and_run_lengths_are_masks(tmp_path: Path):
    square = np.zeros((6, 8), bool)
    square[1:4, 2:7] = True
    assert (segmented(tmp_path, [[2, 1, 7, 1, 7, 4, 2, 4]]).pixels() == square).all()
    runs = [2 * 6 + 1, *[3, 3] * 4, 3, 6 + 2]  # column by column
    plain = segmented(tmp_path, {"size": [6, 8], "counts": runs})
    code = mask.encode(np.asfortranarray(square.astype(np.uint8)))["counts"].decode()
    coded = segmented(tmp_path, {"size": [6, 8], "counts": code})
    assert (plain.pixels() == square).all()
    assert (coded.pixels() == square).all()
    assert plain == coded == (2, 1, 7, 4)
    # Two polygons are parts of one object.
    parts = segmented(tmp_path, [[0, 0, 2, 0, 2, 2, 0, 2], [6, 4, 8, 4, 8, 6, 6, 6]])
    assert parts.pixels().sum() == 8
    assert parts == (0, 0, 8, 6)


def test_a_polygon_without_a_pixel_has_the_box_of_its_annotation(tmp_path: Path):
    """COCO has objects that are thinner than a pixel."""
    annotation = {
        **CONTENT["annotations"][0],
        "bbox": [2, 3, 0.2, 2],
        "segmentation": [[2, 3, 2.2, 3, 2.2, 5, 2, 5]],
    }
    (cat,) = read_boxes(written(tmp_path, images=SIZED, annotations=[annotation]))[5]["cat"]
    assert cat == (2, 3, 2.2, 5)


@pytest.mark.parametrize(
    ("bbox", "said"),
    [
        ([2, 3, 0, 2], "has no area"),
        ([2, 3, -1, 2], "has no area"),
        ([9, 3, 2, 2], "lies outside of the photo, 8 x 6 pixels"),
        ([0.1, 0.2, 0.5, 0.5], "looks like fractions"),
        ([2, 3, 8, 6], "reaches beyond the photo, 8 x 6 pixels.*a bbox is .x, y, width, height"),
    ],
)
def test_boxes_in_another_convention_are_refused(tmp_path: Path, bbox: list[float], said: str):
    annotation = {**CONTENT["annotations"][0], "bbox": bbox}
    with pytest.raises(DataError, match=f"objects.json', image 5: the box .* {said}"):
        read_boxes(written(tmp_path, images=SIZED, annotations=[annotation]))


@given(st.integers(1, 12), st.integers(1, 12), st.randoms())
def test_run_lengths_are_those_that_pycocotools_writes(height: int, width: int, random: Random):
    pixels = np.array(
        [[random.random() < 0.5 for _ in range(width)] for _ in range(height)], np.uint8, order="F"
    )
    code = mask.encode(pixels)["counts"].decode()
    size = [height, width]
    assert _rle_fault({"size": size, "counts": code}, height, width) is None
    assert _rle_fault({"size": size, "counts": code[:-1]}, height, width) is not None


@pytest.mark.parametrize(
    ("segmentation", "said"),
    [
        ([TRIANGLE[:5]], r"\[0, 0, 8, 0, 0\] is not a polygon"),
        ([[*TRIANGLE[:5], "6"]], "is not a polygon of numbers"),
        ([[*TRIANGLE[:5], 1e300]], "is outside of an image of 8x6 pixels"),
        (3, "its size is not that of the image"),
        ({"size": [8, 6], "counts": [48]}, "its size is not that of the image"),
        ({"size": [6, 8], "counts": [40, 20]}, "are not the runs of 48 pixels"),
        ({"size": [6, 8], "counts": [50, -2]}, "are not the runs"),
        ({"size": [6, 8], "counts": "\u00ff0"}, "are not the runs"),
        ({"size": [6, 8]}, "None are not the runs"),
    ],
)  # fmt: skip
def test_a_broken_segmentation_is_named(tmp_path: Path, segmentation: Any, said: str):
    """pycocotools would take four numbers for a box, and read memory behind a code that is too short."""
    with pytest.raises(DataError, match=f"annotation 1 of '.*objects.json' .*{said}"):
        segmented(tmp_path, segmentation)


def test_another_file_is_refused(tmp_path: Path):
    (first, _) = CONTENT["annotations"]
    for entry in ({"category_id": 2}, {"image_id": 9}, {"bbox": [1, 2, 3]}, {"bbox": "abcd"}):
        with pytest.raises(DataError, match="is not a COCO instances file"):
            read_boxes(written(tmp_path, annotations=[{**first, **entry}]))
    with pytest.raises(DataError, match="'categories'"):
        read_boxes(written(tmp_path, categories=None))
