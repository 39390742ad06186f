"""The photos of a store: their recorded sizes, and detection of changed files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.feature_stores import (
    TRANSFORM,
    Images,
    contents,
    extract,
    make_encoder,
    make_images,
    read,
    regions_of,
)
from PIL import Image

from caption.core.errors import DataError
from caption.data.batches import CaptionedImages
from caption.data.features.extraction import changed_photos, photo_digest
from caption.data.features.files import PhotoFile
from caption.data.features.store import FeatureStore
from caption.data.resize import FittedPhoto, ImageTransform
from caption.data.splits import CaptionedImage
from caption.text.vocabulary import Vocabulary


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return make_images(tmp_path / "images", 10)


@pytest.fixture
def folder(images: Images, tmp_path: Path) -> Path:
    extract(images, tmp_path / "store")
    return tmp_path / "store"


def replace_photo(image: CaptionedImage, seed: int = 1) -> None:
    """Another picture under the same name."""
    noise = np.random.default_rng(seed).integers(0, 256, (30, 20, 3), dtype=np.uint8)
    Image.fromarray(noise).save(image.path)


def test_boxes_are_those_of_the_upright_photos_and_none_is_opened(tmp_path: Path):
    images = make_images(tmp_path / "images", 2)
    exif = Image.Exif()
    exif[0x0112] = 6  # rotated by 90 degrees
    Image.new("RGB", (40, 30)).save(images[1].path, exif=exif)
    extract(images, tmp_path / "store")
    shutil.rmtree(tmp_path / "images")
    stored = CaptionedImages(images, Vocabulary(["a"]), TRANSFORM, store=FeatureStore(tmp_path / "store"))
    assert [stored[i].box for i in range(2)] == [(0, 0, 24, 20), (0, 0, 30, 40)]


def test_a_photo_replaced_while_it_is_read_does_not_go_unnoticed(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    read = ImageTransform.read

    def too_late(transform: ImageTransform, path: Path) -> FittedPhoto:
        if path == images[2].path:
            replace_photo(images[2])
        return read(transform, path)

    monkeypatch.setattr(ImageTransform, "read", too_late)
    extract(images, tmp_path / "store")
    changed = changed_photos(FeatureStore(tmp_path / "store"), images, 2)
    assert changed == [images[2]]


def test_changed_photos_are_refused_and_named(images: Images, folder: Path):
    before = contents(folder)
    replace_photo(images[2])
    images[5].path.unlink()
    with pytest.raises(
        DataError, match=r"2 images are no longer .*002\.png', '.*005\.png'\. .* with --verify"
    ):
        extract(images, folder)
    assert contents(folder) == before


def test_verifying_extracts_changed_photos_again(images: Images, folder: Path):
    kept = read(FeatureStore(folder), *(images[i].id for i in (0, 1, 3)))
    for i in (2, 5):
        replace_photo(images[i], seed=i)
    done = extract(images, folder, verify=True)
    assert (done.changed, done.stored, done.present, done.dropped) == (2, 2, 8, 0)
    assert "2 had changed since they were stored and are removed" in str(done)
    store = FeatureStore(folder)
    assert not store.damaged()
    assert len(store) == 10
    assert torch.equal(read(store, *(images[i].id for i in (0, 1, 3))), kept)
    for i in (2, 5):
        torch.testing.assert_close(
            read(store, images[i].id)[0].float(), regions_of(images[i], make_encoder()), rtol=1e-3, atol=1e-3
        )
        assert store.photo(images[i].id) == PhotoFile(20, 30, photo_digest(images[i].path))
    assert extract(images, folder).present == 10


def test_a_changed_photo_that_cannot_be_read_is_left_out(images: Images, folder: Path):
    images[1].path.write_bytes(b"no image any more")
    done = extract(images, folder, verify=True)
    assert (done.changed, done.stored, [image.id for image, _ in done.failed]) == (1, 0, [images[1].id])
    assert images[1].id not in FeatureStore(folder).ids
