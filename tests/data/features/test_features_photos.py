"""The photos of a store: their recorded sizes, and detection of changed files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.feature_stores import (
    TRANSFORM,
    Images,
    contents,
    extract,
    make_images,
)
from PIL import Image

from caption.core.errors import DataError
from caption.data.batches import CaptionedImages
from caption.data.features.extraction import changed_photos
from caption.data.features.format import PhotoFile, photo_digest
from caption.data.features.store import FeatureStore
from caption.data.photos import FittedPhoto, ImageTransform
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
    with pytest.raises(DataError, match=r"002\.png', '.*005\.png'.* features-00000\."):
        extract(images, folder)
    assert contents(folder) == before
    (folder / "features-00000.safetensors").unlink()
    done = extract(images, folder)
    assert (done.stored, [image.id for image, _ in done.failed]) == (9, [images[5].id])
    store = FeatureStore(folder)
    assert images[5].id not in store
    assert store.photo(images[2].id) == PhotoFile(20, 30, photo_digest(images[2].path))
