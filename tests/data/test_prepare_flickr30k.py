"""`caption prepare flickr30k`: every published form of the download, and the message for every fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.downloads import contents, karpathy, make_folder, make_tar, make_zip, photo
from helpers.downloads import prepare as prepare_as

from caption.data.prepare import datasets
from caption.data.readers.karpathy import Karpathy

NAMES = [f"100{number}.jpg" for number in range(6)]
SPLITS = {"train": NAMES[:3], "val": NAMES[3:4], "test": NAMES[4:5]}  # the last is in none
EXPECTED = datasets.Flickr30k(photos=6, captions=12, splits={"train": 3, "val": 1, "test": 1})
PHOTOS = {name: photo(number) for number, name in enumerate(NAMES)}
JSON = karpathy(SPLITS)
TOKENS = "".join(f"{name}#{k}\tCaption {k} .\n" for name in NAMES for k in range(2)).encode()
# The second-last row lacks a bar, like a row of Kaggle's file.
ROWS = [f"{name}| {k}| Caption {k} .\n" for name in NAMES for k in range(2)]
KAGGLE = "".join(
    ["image_name| comment_number| comment\n", *ROWS[:-2], f"{NAMES[5]}| 0   Caption 0 .\n", ROWS[-1]]
)


def prepare(out: Path, *downloads: object, check_only: bool = False) -> int:
    return prepare_as(EXPECTED, "flickr30k", out, *downloads, check_only=check_only)


def in_folder(folder: str, files: dict[str, bytes]) -> dict[str, bytes]:
    return {f"{folder}/{name}": data for name, data in files.items()}


def as_the_authors(folder: Path) -> list[Path]:
    images = make_tar(folder / "flickr30k-images.tar.gz", in_folder("flickr30k-images", PHOTOS))
    texts = make_tar(folder / "flickr30k.tar.gz", {"results_20130124.token": TOKENS, "readme.txt": b""})
    return [images, texts, make_zip(folder / "caption_datasets.zip", {"dataset_flickr30k.json": JSON})]


def as_kaggle(folder: Path) -> list[Path]:
    """The archive contains everything twice."""
    once = PHOTOS | {"results.csv": KAGGLE.encode()}
    twice = in_folder("flickr30k_images", once) | in_folder("flickr30k_images/flickr30k_images", once)
    made = make_folder(folder / "files", {"dataset_flickr30k.json": JSON})
    return [make_zip(folder / "archive.zip", twice), made / "dataset_flickr30k.json"]


@pytest.mark.parametrize("downloaded", [as_the_authors, as_kaggle])
def test_every_layout_comes_to_the_same(downloaded: Any, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert prepare(out, *downloaded(tmp_path)) == 0
    texts = {"dataset_flickr30k.json": JSON, "results_20130124.token": TOKENS}
    assert contents(out) == in_folder("images", PHOTOS) | texts
    splits = Karpathy(str(out / "dataset_flickr30k.json"), str(out / "images")).read()
    assert {split: [image.id for image in images] for split, images in splits.items()} == SPLITS
    assert prepare(out, check_only=True) == 0


def test_the_authors_captions_are_not_needed(tmp_path: Path) -> None:
    files = PHOTOS | {"dataset_flickr30k.json": JSON}
    assert prepare(tmp_path / "out", make_folder(tmp_path / "given", files)) == 0
    assert "results_20130124.token" not in contents(tmp_path / "out")


ALL = PHOTOS | {"results_20130124.token": TOKENS, "dataset_flickr30k.json": JSON}
FAULTS: list[tuple[dict[str, bytes], str]] = [
    ({name: data for name, data in ALL.items() if name != NAMES[1]}, "5 photos instead of 6"),
    (
        {name: data for name, data in ALL.items() if name != NAMES[1]},
        f"1 photos named in dataset_flickr30k.json not among the photos: {NAMES[1]}",
    ),
    (
        {name: data for name, data in ALL.items() if ".json" not in name},
        "dataset_flickr30k.json is not in",
    ),
    (ALL | {"results_20130124.token": TOKENS[:-24]}, "11 captions in results_20130124.token instead of 12"),
    (ALL | {"results_20130124.token": TOKENS + b"9.jpg#0\tx\n"}, "not among the photos: 9.jpg"),
    (ALL | {"dataset_flickr30k.json": karpathy(SPLITS | {"val": []})}, "0 photos in the val split of"),
    (ALL | {"extra.jpg": photo(8)}, "1 photos not named in results_20130124.token: extra.jpg"),
    (
        PHOTOS | {"dataset_flickr30k.json": JSON, "results.csv": b"heading\nno row\n"},
        "line 2 of 'results.csv'",
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
    assert prepare_as(None, "flickr30k", tmp_path / "out", *as_the_authors(tmp_path)) == 2
    said = capsys.readouterr().err
    for number in ("31,783", "158,915", "29,000", "1,014", "1,000"):
        assert f"instead of {number}" in said
