"""Mirrored training images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from caption.core.errors import DataError
from caption.data.augmentation import HorizontalFlip, mirror
from caption.data.module import CaptionData
from caption.data.photos import ImageTransform
from caption.data.shapes import Shapes


def test_columns_are_reversed_with_the_given_probability_unless_a_caption_names_a_side():
    flip, random = HorizontalFlip(0.3), np.random.default_rng(0)
    flipped = [flip.mirrors(["a dog"], random) for _ in range(2000)]
    assert sum(flipped) / 2000 == pytest.approx(0.3, abs=0.03)
    assert mirror(torch.arange(24).view(3, 2, 4))[0, 0].tolist() == [3, 2, 1, 0]
    assert HorizontalFlip(1.0).mirrors(["a bright cleft"], random)  # not left and right
    for caption in ("The dog on the Left runs.", "a man turns right", "left-hand page"):
        assert not HorizontalFlip(1.0).mirrors(["a dog", caption], random), caption
    with pytest.raises(DataError, match="is 2"):
        HorizontalFlip(2)


def test_training_images_are_mirrored_and_the_others_never(reader: Shapes):
    plain, mirrored = (
        CaptionData(reader, ImageTransform(16, "squash"), 4, min_count=1, flip=flip)
        for flip in (None, HorizontalFlip(1.0))
    )
    changed = 0
    for split in ("train", "val"):
        loaders = (getattr(data, f"{split}_dataloader")() for data in (plain, mirrored))
        for one, other in zip(*loaders, strict=True):
            assert (one.ids, one.boxes) == (other.ids, other.boxes)
            for pixels, found, captions in zip(one.images, other.images, one.references, strict=True):
                is_mirrored = split == "train" and not {"left", "right"} & {*" ".join(captions).split()}
                assert torch.equal(found, pixels.flip(-1) if is_mirrored else pixels)
                changed += is_mirrored
    assert changed


@pytest.mark.parametrize("batching", ["images", "lengths"])
def test_the_same_epoch_mirrors_the_same_images(reader: Shapes, batching: str):
    epochs = []
    for flip in (HorizontalFlip(0.5), HorizontalFlip(0.5), None):
        torch.manual_seed(0)
        data = CaptionData(reader, ImageTransform(48), 8, 1, batching, min_count=1, flip=flip)
        torch.rand(1 + len(epochs))  # other random numbers drawn in between
        epochs.append([(batch.ids, batch.images) for batch in data.train_dataloader()])
    for (ids, images), (same_ids, same), _ in zip(*epochs, strict=True):
        assert ids == same_ids
        assert torch.equal(images, same)
    assert not all(torch.equal(one, other) for (_, one), (_, other) in zip(epochs[0], epochs[2], strict=True))
