"""Mirrored training images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from caption.data.augmentation import HorizontalFlip
from caption.data.module import CaptionData
from caption.data.resize import ImageTransform
from caption.data.shapes import Shapes
from caption.errors import DataError

PIXELS = torch.arange(24, dtype=torch.uint8).view(3, 2, 4)


def test_columns_are_reversed_with_the_given_probability():
    flip, random = HorizontalFlip(0.3), np.random.default_rng(0)
    flipped = [bool((flip(PIXELS, ["a dog"], random) != PIXELS).any()) for _ in range(2000)]
    assert sum(flipped) / 2000 == pytest.approx(0.3, abs=0.03)
    always = HorizontalFlip(1.0)(PIXELS, ["a bright cleft"], np.random.default_rng(0))  # not left and right
    assert torch.equal(always, PIXELS.flip(-1))
    assert always[0, 0].tolist() == [3, 2, 1, 0]
    with pytest.raises(DataError, match="probability of a flip is 2"):
        HorizontalFlip(2)


@pytest.mark.parametrize("caption", ["The dog on the Left runs.", "a man turns right", "left-hand page"])
def test_an_image_whose_captions_name_a_side_is_never_mirrored(caption: str):
    assert HorizontalFlip(1.0)(PIXELS, ["a dog", caption], np.random.default_rng(0)) is PIXELS


def test_training_images_are_mirrored_and_the_others_never(shapes: Path):
    reader = Shapes(str(shapes), train=8, val=4, test=4, size=48)
    pixels = {}
    for flip in (None, HorizontalFlip(1.0)):
        data = CaptionData(reader, ImageTransform(16, "squash"), batch_size=4, min_count=1, flip=flip)
        for split, loader in (
            ("train", data._images("train", per_image=1, flip=flip)),
            ("val", data._images("val", per_image=1)),
        ):
            pixels[split, flip] = [loader[i] for i in range(len(loader))]
        torch.manual_seed(0)
        pixels["batch", flip] = {
            id: image
            for batch in data.train_dataloader()
            for id, image in zip(batch.ids, batch.images, strict=True)
        }
    mirrored = 0
    for one, other in zip(pixels["train", None], pixels["train", HorizontalFlip(1.0)], strict=True):
        sides = any(word in caption.split() for caption in one.image.captions for word in ("left", "right"))
        assert torch.equal(other.pixels, one.pixels if sides else one.pixels.flip(-1))
        assert (other.image, other.box) == (one.image, one.box)
        in_batch = pixels["batch", HorizontalFlip(1.0)][one.image.id]
        assert torch.equal(in_batch, other.pixels)
        mirrored += not sides
    assert mirrored
    for one, other in zip(pixels["val", None], pixels["val", HorizontalFlip(1.0)], strict=True):
        assert torch.equal(one.pixels, other.pixels)


@pytest.mark.parametrize("batching", ["images", "lengths"])
def test_the_same_epoch_mirrors_the_same_images(shapes: Path, batching: str):
    reader = Shapes(str(shapes), train=40, val=8, test=8, size=48)
    epochs = []
    for flip in (HorizontalFlip(0.5), HorizontalFlip(0.5), None):
        torch.manual_seed(0)
        data = CaptionData(reader, ImageTransform(48), 8, 1, batching, min_count=1, flip=flip)
        torch.rand(1 + len(epochs))  # other random numbers drawn in between
        epochs.append([(batch.ids, batch.images) for batch in data.train_dataloader()])
    for (ids, images), (same_ids, same), (_, plain) in zip(*epochs, strict=True):
        assert ids == same_ids
        assert torch.equal(images, same)
        assert torch.equal(images.sum((1, 2, 3)), plain.sum((1, 2, 3)))
    assert not all(torch.equal(one, other) for (_, one), (_, other) in zip(epochs[0], epochs[2], strict=True))
