"""Conversion of stores of earlier formats, written by earlier releases, to the current format."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.feature_stores import (
    IMAGE_BYTES,
    TRANSFORM,
    contents,
    extract,
    make_encoder,
    make_images,
    read,
    regions_of,
)

from caption.cli.main import main as caption_main
from caption.data.batches import CaptionedImages
from caption.data.feature_extraction import photo_digest
from caption.data.readers.captions import CaptionedImage
from caption.errors import DataError
from caption.features import shards
from caption.features.convert import convert_store
from caption.features.shards import PhotoFile
from caption.features.store import FeatureStore
from caption.text.vocabulary import Vocabulary

# Nine images of `make_images` through `make_encoder`, four a shard; number 5 was removed.
OLD = Path(__file__).parent / "old_stores"
IDS = ["image 0.png", 1, "image 2.png", 3, "image 4.png", "image 6.png", 7, "image 8.png"]
FORMATS = ["format1", "format2"]


@pytest.fixture
def images(tmp_path: Path) -> list[CaptionedImage]:
    return make_images(tmp_path / "images", 9)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A copy of the store of format 2, to be damaged."""
    return Path(shutil.copytree(OLD / "format2", tmp_path / "old"))


def raw(folder: Path) -> np.ndarray:
    """The regions (9, 64, 6) in the files of an old store."""
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("shard-*.f16")))
    return np.frombuffer(data, "<f2").reshape(9, 64, 6)


@pytest.mark.parametrize("name", FORMATS)
def test_everything_in_an_old_store_is_kept(images: list[CaptionedImage], tmp_path: Path, name: str) -> None:
    done = convert_store(OLD / name, tmp_path / "new", progress=False)
    assert (done.stored, done.dropped) == (8, 0)
    store = FeatureStore(tmp_path / "new")
    store.verify()
    assert store.ids() == IDS
    assert store.grids == [(8, 8)]
    assert store.key == json.loads((OLD / name / "store.json").read_text())["key"]
    assert torch.equal(read(store, *IDS), torch.from_numpy(np.delete(raw(OLD / name), 5, 0)))
    for image in images[:5]:
        expected = regions_of(image, make_encoder())
        torch.testing.assert_close(read(store, image.id)[0].float(), expected, rtol=1e-3, atol=1e-3)
        photo = PhotoFile(24, 20, photo_digest(image.path) or 0)
        assert store.photo(image.id) == (None if name == "format1" else photo)


@pytest.mark.parametrize("name", FORMATS)
def test_a_converted_store_is_continued(
    images: list[CaptionedImage], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    convert_store(OLD / name, tmp_path / "new", progress=False)
    done = extract(images, tmp_path / "new", progress=True)
    assert (done.present, done.stored, done.changed) == (8, 1, 0)
    FeatureStore(tmp_path / "new").check([image.id for image in images])
    unknown = "cannot tell whether 8 photos have changed" in capsys.readouterr().err
    assert unknown == (name == "format1")


def test_where_the_size_is_unknown_the_photo_is_opened(images: list[CaptionedImage], tmp_path: Path) -> None:
    convert_store(OLD / "format1", tmp_path / "new", progress=False)
    words = Vocabulary(["a", "caption", "number"])
    store = FeatureStore(tmp_path / "new")
    dataset = CaptionedImages(images[:2], words, TRANSFORM, store=store, with_boxes=True)
    assert [tuple(box) for box in dataset.collate([dataset[0], dataset[1]]).boxes] == [(0, 0, 24, 20)] * 2


def test_a_stopped_conversion_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "SHARD_BYTES", 3 * IMAGE_BYTES)
    convert_store(OLD / "format2", tmp_path / "whole", progress=False)
    shutil.copytree(tmp_path / "whole", tmp_path / "stopped")
    (tmp_path / "stopped" / "shard-00002.safetensors").unlink()
    done = convert_store(OLD / "format2", tmp_path / "stopped", progress=False)
    assert (done.present, done.stored) == (6, 2)
    assert contents(tmp_path / "stopped") == contents(tmp_path / "whole")


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 0x10
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    ("spoil", "lost"),
    [
        (lambda old: flip(old / "shard-00000.f16", 5), {"image 0.png"}),
        (lambda old: flip(old / "index.bin", 48 * 3 + 26), {3}),  # the digest of its photo
        (lambda old: flip(old / "ids.txt", 4), {"image 0.png"}),
        (lambda old: cut(old / "shard-00001.f16", 2 * IMAGE_BYTES + 7), {"image 6.png", 7}),
        (lambda old: (old / "shard-00002.f16").unlink(), {"image 8.png"}),
        (lambda old: (old / "ids.txt").unlink(), set(IDS)),
        (lambda old: cut(old / "index.bin", 48 * 8 + 13), set()),  # a write that was interrupted
    ],
)
def test_damaged_images_are_left_out(
    old: Path, tmp_path: Path, spoil: Callable[[Path], None], lost: set
) -> None:
    spoil(old)
    done = convert_store(old, tmp_path / "new", progress=False)
    assert done.dropped == len(lost)
    if len(lost) < len(IDS):
        store = FeatureStore(tmp_path / "new")
        complete = IDS if (old / "index.bin").stat().st_size == 48 * 9 else IDS[:-1]
        assert store.ids() == [image_id for image_id in complete if image_id not in lost]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda old: (old / "store.json").write_text("{"),
        lambda old: (old / "store.json").write_text("[]"),
        lambda old: (old / "store.json").write_text('{"format": 99}'),
        lambda old: (old / "store.json").unlink(),
        lambda old: (old / "index.bin").unlink(),
    ],
)
def test_other_files_are_refused(old: Path, tmp_path: Path, spoil: Callable[[Path], None]) -> None:
    spoil(old)
    with pytest.raises(DataError, match="is not a feature store of format 1 or 2"):
        convert_store(old, tmp_path / "new")


def test_a_store_of_something_else_is_not_added_to(images: list[CaptionedImage], tmp_path: Path) -> None:
    extract(images, tmp_path / "other", encoder=make_encoder(seed=1))
    with pytest.raises(DataError, match="made with something else"):
        convert_store(OLD / "format2", tmp_path / "other")


def test_an_old_store_itself_is_refused_with_the_remedy(images: list[CaptionedImage], old: Path) -> None:
    with pytest.raises(DataError, match="--convert"):
        FeatureStore(old)
    before = contents(old)
    with pytest.raises(DataError, match=r"of an earlier release: convert it with .*--convert"):
        extract(images, old)
    assert contents(old) == before


def test_from_the_command_line(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert caption_main(["features", "--convert", str(old), "--out", str(tmp_path / "new")]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "8 stored" in said.err
    flip(old / "shard-00000.f16", 5)
    assert caption_main(["features", "--convert", str(old), "--out", str(tmp_path / "damaged")]) == 1
    assert "7 stored, 1 were damaged" in capsys.readouterr().err
    both = ["features", "--convert", str(old), "--config", "x.yaml", "--out", str(tmp_path / "new")]
    for wrong in (["features", "--out", "x"], both, [*both[:3], "--out", "x", "--data.transform.size", "3"]):
        assert caption_main(wrong) == 2
