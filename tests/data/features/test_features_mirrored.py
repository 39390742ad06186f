"""Stores of mirrored training images: their key, and training on them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.feature_stores import TRANSFORM, extract, make_encoder, make_images
from torch import Tensor

from caption.core.errors import DataError
from caption.data.augmentation import HorizontalFlip
from caption.data.features.store import FeatureStore
from caption.data.module import CaptionData
from caption.data.shapes import Shapes

SIDES = ("left", "right")


def encode(pixels: Tensor) -> Tensor:
    with torch.no_grad():
        return make_encoder()(pixels)[0].vectors.half()


def test_a_store_is_of_mirrored_images_or_of_others(tmp_path: Path):
    images = make_images(tmp_path / "images", 2)
    for name, mirrored in (("plain", False), ("mirrored", True)):
        extract(images, tmp_path / name, mirrored=mirrored)
        said = f"made with mirrored images {mirrored} instead of {not mirrored}"
        with pytest.raises(DataError, match=said):
            FeatureStore(tmp_path / name).matches(make_encoder(), TRANSFORM.to_dict(), not mirrored)
        with pytest.raises(DataError, match=said):
            extract(images, tmp_path / name, mirrored=not mirrored)


@pytest.fixture(scope="module")
def stores(reader: Shapes, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A store of all scenes, one of the mirrored training scenes, and one of some of these."""
    folder, splits = tmp_path_factory.mktemp("stores"), reader.read()
    extract([image for split in splits.values() for image in split], folder / "plain")
    extract(splits["train"], folder / "mirrored", mirrored=True)
    extract(splits["train"][:30], folder / "few", mirrored=True)
    return {name: str(folder / name) for name in ("plain", "mirrored", "few")}


def data(reader: Shapes, features: str | None, flip: HorizontalFlip | None) -> CaptionData:
    torch.manual_seed(0)
    return CaptionData(reader, TRANSFORM, 8, 2, min_count=1, features=features, flip=flip)


def test_training_gets_the_regions_that_it_would_encode(reader: Shapes, stores: dict[str, str]):
    """The same images are mirrored with and without stores, each in its place in the batch."""
    stored = data(reader, stores["plain"], HorizontalFlip(0.5, features=stores["mirrored"]))
    encoded = data(reader, None, HorizontalFlip(0.5))
    plain = data(reader, stores["plain"], None)
    differs: list[bool] = []
    loaders = (each.train_dataloader() for each in (stored, encoded, plain))
    for one, other, unchanged in zip(*loaders, strict=True):
        assert one.ids == other.ids == unchanged.ids
        assert torch.equal(one.captions.targets, other.captions.targets)
        assert one.images is None
        (regions,), (usual,) = one.views, unchanged.views
        assert torch.allclose(regions.vectors, encode(other.images), atol=2e-3)
        changed = (regions.vectors != usual.vectors).flatten(1).any(1).tolist()
        for captions, is_changed in zip(one.references, changed, strict=True):
            assert not (is_changed and any(side in text.split() for text in captions for side in SIDES))
        differs += changed
    assert {*differs} == {True, False}


def test_stores_that_do_not_fit_the_flip_are_refused(reader: Shapes, stores: dict[str, str]):
    for features, flip, said in (
        ("plain", HorizontalFlip(), "caption features --mirrored"),
        (None, HorizontalFlip(features="mirrored"), "name both, or neither"),
        ("plain", HorizontalFlip(features="nowhere"), "'nowhere' is not a feature store"),
        ("plain", HorizontalFlip(features=stores["few"]), "lacks 10 of 40 images"),
    ):
        with pytest.raises(DataError, match=said):
            data(reader, features and stores[features], flip)
