"""Stores of mirrored training images: their content, their key, and training on them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.feature_stores import TRANSFORM, extract, make_encoder, make_images, read
from torch import Tensor

from caption.data.augmentation import HorizontalFlip
from caption.data.batches import Batch
from caption.data.decoding import open_image
from caption.data.module import CaptionData
from caption.data.shapes import Shapes
from caption.data.splits import CaptionedImage
from caption.errors import DataError
from caption.features.store import FeatureStore

SIDES = ("left", "right")


@pytest.fixture
def images(tmp_path: Path) -> list[CaptionedImage]:
    return make_images(tmp_path / "images", 6)


def encode(pixels: Tensor) -> Tensor:
    with torch.no_grad():
        return make_encoder()(pixels)[0].vectors.half()


def test_it_holds_the_regions_of_the_mirrored_image(images: list[CaptionedImage], tmp_path: Path):
    extract(images, tmp_path / "store", mirrored=True)
    mirrored = [TRANSFORM(open_image(image.path)).flip(-1) for image in images]
    found = read(FeatureStore(tmp_path / "store"), *(image.id for image in images))
    assert torch.allclose(found, encode(torch.stack(mirrored)), atol=2e-3)


def test_a_store_is_of_mirrored_images_or_of_others(images: list[CaptionedImage], tmp_path: Path):
    for name, mirrored in (("plain", False), ("mirrored", True)):
        extract(images, tmp_path / name, mirrored=mirrored)
        store = FeatureStore(tmp_path / name)
        store.matches(make_encoder(), TRANSFORM.to_dict(), mirrored)
        said = f"made with mirrored images {mirrored} instead of {not mirrored}"
        with pytest.raises(DataError, match=said):
            store.matches(make_encoder(), TRANSFORM.to_dict(), not mirrored)
        with pytest.raises(DataError, match=said):
            extract(images, tmp_path / name, mirrored=not mirrored)


@pytest.fixture
def stores(shapes: Path, tmp_path: Path) -> dict[str, str]:
    """A store of all scenes, and one of the mirrored training scenes."""
    splits = Shapes(str(shapes), train=40, val=8, test=8, size=48).read()
    extract([image for split in splits.values() for image in split], tmp_path / "plain")
    extract(list(splits["train"]), tmp_path / "mirrored", mirrored=True)
    return {name: str(tmp_path / name) for name in ("plain", "mirrored")}


def data(shapes: Path, features: str | None, flip: HorizontalFlip | None) -> CaptionData:
    torch.manual_seed(0)
    reader = Shapes(str(shapes), train=40, val=8, test=8, size=48)
    return CaptionData(reader, TRANSFORM, 8, 2, min_count=1, features=features, flip=flip)


@pytest.mark.parametrize("probability", [0.5, 1.0])
def test_training_gets_the_regions_that_it_would_encode(
    probability: float, shapes: Path, stores: dict[str, str]
):
    """The same images are mirrored with and without stores, each in its place in the batch."""
    stored = data(shapes, stores["plain"], HorizontalFlip(probability, features=stores["mirrored"]))
    encoded = data(shapes, None, HorizontalFlip(probability))
    plain = data(shapes, stores["plain"], None)
    changed = kept = 0
    batches: list[tuple[Batch, ...]] = list(
        zip(*(each.train_dataloader() for each in (stored, encoded, plain)), strict=True)
    )
    for one, other, unchanged in batches:
        assert one.ids == other.ids == unchanged.ids
        assert torch.equal(one.targets, other.targets)
        assert one.images is None
        (regions,), (usual,) = one.views, unchanged.views
        assert torch.allclose(regions.vectors, encode(other.images), atol=2e-3)
        differs = (regions.vectors != usual.vectors).flatten(1).any(1)
        for captions, differing in zip(one.references, differs.tolist(), strict=True):
            assert not (differing and any(side in text.split() for text in captions for side in SIDES))
            changed, kept = changed + differing, kept + (not differing)
    assert changed
    assert kept


@pytest.mark.parametrize(
    ("features", "flip", "said"),
    [
        ("plain", HorizontalFlip(), "caption features --mirrored"),
        (None, HorizontalFlip(features="mirrored"), "name both, or neither"),
        ("plain", HorizontalFlip(features="nowhere"), "'nowhere' is not a feature store"),
    ],
)
def test_stores_that_do_not_fit_the_flip_are_refused(
    features: str | None, flip: HorizontalFlip, said: str, shapes: Path, stores: dict[str, str]
):
    with pytest.raises(DataError, match=said):
        data(shapes, features and stores[features], flip)


def test_images_that_are_missing_from_the_mirrored_store_are_named(
    shapes: Path, stores: dict[str, str], tmp_path: Path
):
    few = Shapes(str(shapes), train=40, val=8, test=8, size=48).read()["train"][:30]
    extract(list(few), tmp_path / "few", mirrored=True)
    with pytest.raises(DataError, match="10 of 40 images are not in the feature store"):
        data(shapes, stores["plain"], HorizontalFlip(features=str(tmp_path / "few")))
