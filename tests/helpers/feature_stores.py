"""A small encoder, images of noise, and stores of their regions, for the tests of feature stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from caption.data.features.extraction import Extraction, write_features
from caption.data.features.store import FeatureStore
from caption.data.photos import ImageTransform, open_image
from caption.data.splits import CaptionedImage
from caption.encoders import SmallCNN

Images = list[CaptionedImage]
TRANSFORM = ImageTransform(16, "squash")
IMAGE_BYTES = 8 * 8 * 6 * 2  # of 16 pixels through `make_encoder`


def make_encoder(seed: int = 0) -> SmallCNN:
    torch.manual_seed(seed)
    encoder = SmallCNN(widths=(4, 6))
    encoder.freeze()
    return encoder


def make_images(folder: Path, count: int) -> Images:
    """Images of noise, with ids that alternate between numbers and names."""
    folder.mkdir(exist_ok=True)
    noise = np.random.default_rng(0)
    images = []
    for number in range(count):
        path = folder / f"{number:03d}.png"
        Image.fromarray(noise.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(path)
        image_id: int | str = number if number % 2 else f"image {number}.png"
        images.append(CaptionedImage(image_id, path, (f"caption number {number % 3}", "another caption")))
    return images


def regions_of(image: CaptionedImage, encoder: SmallCNN) -> Tensor:
    """The image's regions (L, D), encoded now."""
    with torch.no_grad():
        return encoder(TRANSFORM(open_image(image.path))[None])[0].vectors[0]


def extract(images: Images, folder: Path, **options: Any) -> Extraction:
    """Create or resume a store of the images."""
    settings = {"batch_size": 4, "workers": 2, **options}
    return write_features(settings.pop("encoder", make_encoder()), TRANSFORM, images, folder, **settings)


def read(store: FeatureStore, *image_ids: int | str) -> Tensor:
    """The vectors (B, L, D) of images in a store of one view."""
    (regions,) = store.read_many(image_ids)
    return regions.vectors


def contents(folder: Path) -> dict[str, bytes]:
    """All files of a store."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".caption")}
