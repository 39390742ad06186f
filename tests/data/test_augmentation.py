"""Mirrored training images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from caption.data.augmentation import HorizontalFlip, mirror
from caption.data.module import CaptionData
from caption.data.resize import ImageTransform
from caption.data.shapes import Shapes
from caption.errors import DataError

PIXELS = torch.arange(24, dtype=torch.uint8).view(3, 2, 4)


def test_columns_are_reversed_with_the_given_probability():
    flip, random = HorizontalFlip(0.3), np.random.default_rng(0)
    flipped = [flip.mirrors(["a dog"], random) for _ in range(2000)]
    assert sum(flipped) / 2000 == pytest.approx(0.3, abs=0.03)
    assert HorizontalFlip(1.0).mirrors(["a bright cleft"], np.random.default_rng(0))  # not left and right
    assert mirror(PIXELS)[0, 0].tolist() == [3, 2, 1, 0]
    with pytest.raises(DataError, match="probability of a flip is 2"):
        HorizontalFlip(2)


@pytest.mark.parametrize("caption", ["The dog on the Left runs.", "a man turns right", "left-hand page"])
def test_an_image_whose_captions_name_a_side_is_never_mirrored(caption: str):
    assert not HorizontalFlip(1.0).mirrors(["a dog", caption], np.random.default_rng(0))


def test_training_images_are_mirrored_and_the_others_never(shapes: Path):
    reader = Shapes(str(shapes), train=8, val=4, test=4, size=48)
    options = {"transform": ImageTransform(16, "squash"), "batch_size": 4, "min_count": 1}
    plain, mirrored = (CaptionData(reader, **options, flip=flip) for flip in (None, HorizontalFlip(1.0)))
    images = {}
    for data in (plain, mirrored):
        batches = [*data.train_dataloader(), *data.val_dataloader()]
        images[data] = {
            image_id: (pixels, box, " ".join(captions).split())
            for batch in batches
            for image_id, pixels, box, captions in zip(
                batch.ids, batch.images, batch.boxes, batch.references, strict=True
            )
        }
    training = {image.id for image in plain.splits["train"]}
    changed = 0
    for image_id, (pixels, box, words) in images[plain].items():
        is_mirrored = image_id in training and not {"left", "right"} & {*words}
        other, other_box, _ = images[mirrored][image_id]
        assert torch.equal(other, pixels.flip(-1) if is_mirrored else pixels)
        assert other_box == box
        changed += is_mirrored
    assert changed


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
