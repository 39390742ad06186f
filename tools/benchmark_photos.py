"""Photos, an encoder and captions for the parts of the benchmark that start from images.

Where the folder beside the checkout has them, Flickr8k's photos and MobileNetV2's weights; elsewhere scenes of Shapes
and random weights, so that the commands work anywhere. Which it was, the tables say: `Photos.what`.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image

from caption.data.readers.captions import CaptionedImage
from caption.data.shapes.render import render
from caption.data.shapes.scene import random_scene
from caption.encoders import TorchvisionEncoder

SHARED = Path(__file__).resolve().parents[2] / "shared"
SIZE = (500, 375)
"""Of generated photos, the usual one of Flickr's."""
WORDS = (
    "a",
    "man",
    "dog",
    "ball",
    "red",
    "blue",
    "runs",
    "over",
    "the",
    "green",
    "grass",
    "with",
    "two",
    "near",
)


class Photos(NamedTuple):
    """Images with captions, and what they are."""

    images: list[CaptionedImage]
    what: str


def photos(count: int, folder: Path) -> Photos:
    """So many photos with five captions each; generated ones are written to the folder."""
    real = sorted((SHARED / "data" / "flickr8k" / "images").glob("*.jpg"))[:count]
    files = real if len(real) == count else generated(count, folder)
    with Image.open(files[0]) as first:
        size = f"{first.width}×{first.height}"
    source = "photos of Flickr8k" if files is real else "generated scenes"
    captions = [sentences(number) for number in range(count)]
    images = [CaptionedImage(file.stem, file, text) for file, text in zip(files, captions, strict=True)]
    return Photos(images, f"{count:,} {source}, JPEG, {size}")


def generated(count: int, folder: Path) -> list[Path]:
    """Scenes with smooth noise behind, in the size of photos."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number:06}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        scene = render(random_scene(0, "train", number, 96))
        scene.resize(SIZE, Image.Resampling.BICUBIC).save(path, quality=90)
    return paths


def sentences(number: int) -> tuple[str, ...]:
    """Five, of 8 to 16 words."""
    draw = torch.Generator().manual_seed(number)
    lengths = torch.randint(8, 17, (5,), generator=draw).tolist()
    return tuple(
        " ".join(WORDS[i] for i in torch.randint(len(WORDS), (length,), generator=draw).tolist())
        for length in lengths
    )


def encoder_of(name: str, layer: str) -> TorchvisionEncoder:
    """A model of torchvision; MobileNetV2 with its trained weights where they are at hand."""
    torch.manual_seed(0)
    weights = SHARED / "weights" / "mobilenet_v2_imagenet_features.pth"
    trained = name == "mobilenet_v2" and weights.exists()
    encoder = TorchvisionEncoder(
        name, layer, str(weights) if trained else None, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)
    )
    encoder.load_pretrained()
    return encoder.eval()
