"""`caption prepare coco`: every published form of the download, and the message for every fault."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers.downloads import contents, karpathy, make_folder, make_zip, photo
from helpers.downloads import prepare as prepare_as

from caption.data.prepare import datasets
from caption.data.readers.coco import Coco
from caption.data.readers.karpathy import Karpathy

TRAIN = [f"COCO_train2014_{number:012d}.jpg" for number in range(3)]
VAL = [f"COCO_val2014_{number:012d}.jpg" for number in range(3, 7)]
SPLITS = {"train": TRAIN, "restval": VAL[:1], "val": VAL[1:2], "test": VAL[2:]}
EXPECTED = datasets.Coco(
    photos={"train2014": 3, "val2014": 4},
    captions={"train2014": 6, "val2014": 8},
    splits={"train": 3, "restval": 1, "val": 1, "test": 2},
)
PHOTOS = {f"{name.split('_')[1]}/{name}": photo(number) for number, name in enumerate([*TRAIN, *VAL])}
JSON = karpathy(SPLITS, folder=lambda name: name.split("_")[1])


def captions(names: list[str]) -> bytes:
    """COCO's own captions, two for each photo."""
    images = [{"id": number, "file_name": name} for number, name in enumerate(names)]
    pairs = [(image["id"], k) for image in images for k in range(2)]
    annotations = [{"id": n, "image_id": i, "caption": f"Caption {k}."} for n, (i, k) in enumerate(pairs)]
    return json.dumps({"images": images, "annotations": annotations}).encode()


ANNOTATIONS = {
    "annotations/captions_train2014.json": captions(TRAIN),
    "annotations/captions_val2014.json": captions(VAL),
}
ALL = PHOTOS | ANNOTATIONS | {"dataset_coco.json": JSON}


def prepare(out: Path, *downloads: object, check_only: bool = False) -> int:
    return prepare_as(EXPECTED, "coco", out, *downloads, check_only=check_only)


def as_archives(folder: Path) -> list[Path]:
    parts = {
        part: {n: d for n, d in PHOTOS.items() if n.startswith(part)} for part in ("train2014", "val2014")
    }
    instances = {"annotations/instances_val2014.json": b"{}"}
    return [
        *(make_zip(folder / f"{part}.zip", files) for part, files in parts.items()),
        make_zip(folder / "annotations_trainval2014.zip", ANNOTATIONS | instances),
        make_zip(
            folder / "caption_datasets.zip", {"dataset_coco.json": JSON, "dataset_flickr8k.json": b"{}"}
        ),
    ]


def as_a_folder(folder: Path) -> list[Path]:
    return [make_folder(folder / "coco", ALL)]


@pytest.mark.parametrize("downloaded", [as_archives, as_a_folder])
def test_every_layout_comes_to_the_same(downloaded: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert prepare(out, *downloaded(tmp_path)) == 0
    assert contents(out) == ALL
    splits = Karpathy(str(out / "dataset_coco.json"), str(out)).read()
    assert [image.path.name for image in splits["train"]] == SPLITS["train"] + SPLITS["restval"]
    own = Coco({"val": str(out / "annotations/captions_val2014.json")}, {"val": str(out / "val2014")}).read()
    assert len(own["val"]) == 4
    assert prepare(out, check_only=True) == 0


def test_cocos_own_captions_are_not_needed(tmp_path: Path) -> None:
    assert prepare(tmp_path / "out", make_folder(tmp_path / "c", PHOTOS | {"dataset_coco.json": JSON})) == 0


def without(name: str) -> dict[str, bytes]:
    return {key: data for key, data in ALL.items() if not key.endswith(name)}


FAULTS: list[tuple[dict[str, bytes], str]] = [
    (without(TRAIN[0]), "2 photos COCO_train2014_*.jpg instead of 3"),
    (without(VAL[3]), "3 photos COCO_val2014_*.jpg instead of 4"),
    (without(VAL[3]), f"1 photos named in dataset_coco.json not among the photos: val2014/{VAL[3]}"),
    (without(VAL[3]), f"1 photos named in captions_val2014.json not among the photos: {VAL[3]}"),
    (without("dataset_coco.json"), "dataset_coco.json is not in the downloads. It is in"),
    (
        ALL | {"annotations/captions_train2014.json": captions(TRAIN[:2])},
        "4 captions in captions_train2014.json instead of 6",
    ),
    (
        ALL | {"annotations/captions_train2014.json": captions(TRAIN[:2])},
        f"1 photos not named in captions_train2014.json: {TRAIN[2]}",
    ),
    (
        ALL | {"annotations/captions_val2014.json": b'{"images": []}'},
        "lacks the images and annotations of COCO",
    ),
    (
        ALL
        | {"dataset_coco.json": karpathy(SPLITS | {"restval": []}, folder=lambda name: name.split("_")[1])},
        "0 photos in the restval split of dataset_coco.json instead of 1",
    ),
]


@pytest.mark.parametrize(("files", "message"), FAULTS)
def test_faults_are_named_and_nothing_is_written(
    files: dict[str, bytes], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prepare(tmp_path / "out", make_folder(tmp_path / "given", files)) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_published_numbers_are_the_default(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert prepare_as(None, "coco", tmp_path / "out", *as_archives(tmp_path)) == 2
    said = capsys.readouterr().err
    for number in ("82,783", "40,504", "414,113", "202,654", "30,504", "5,000"):
        assert f"instead of {number}" in said
