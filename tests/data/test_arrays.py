"""Photos that are already in memory."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.tiny_captioner import captioner, photo
from PIL import Image

from caption.core.errors import ImageError
from caption.data.decoding import open_image

PIXELS = np.asarray(photo(24, 16))
"""(16, 24, 3) uint8."""


def stored() -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(PIXELS).save(buffer, "png")
    return buffer.getvalue()


SAME = {
    "array": lambda: PIXELS,
    "array, channels first": lambda: PIXELS.transpose(2, 0, 1),
    "array of floats": lambda: PIXELS / 255,
    "array of 64 bits": lambda: PIXELS.astype(np.int64),
    "array with opacity": lambda: np.concatenate([PIXELS, np.full((16, 24, 1), 255, np.uint8)], 2),
    "tensor": lambda: torch.from_numpy(PIXELS.copy()).permute(2, 0, 1),
    "tensor of floats": lambda: torch.from_numpy(PIXELS / np.float32(255)).permute(2, 0, 1),
    "tensor, channels last": lambda: torch.from_numpy(PIXELS.copy()),
    "tensor with gradient": lambda: torch.from_numpy(PIXELS / 255.0).requires_grad_(),
    "bytes": stored,
    "file object": lambda: io.BytesIO(stored()),
}


@pytest.mark.parametrize(
    "source", [PIXELS[..., 0], PIXELS[..., :1], torch.from_numpy(PIXELS[None, :, :, 0].copy())]
)
def test_grey_has_no_channels_or_one(source):
    assert np.array_equal(np.asarray(open_image(source)), np.repeat(PIXELS[..., :1], 3, 2))


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (np.zeros((2, 16, 24, 3)), r"shape \(2, 16, 24, 3\).*several images as a list"),
        (torch.randn(3, 8, 8) * 2, "before any normalisation"),
        (np.full((4, 4, 3), 300), "0 to 255"),
        (np.full((4, 4), np.nan), "floats from 0 to 1"),
        (np.full((4, 4), "x"), "whole numbers"),
        (b"not an image", "not an image"),
        (io.BytesIO(stored()[:60]), "truncated or damaged"),
        (7, "type int is not a photo"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_photo_is_refused_in_a_sentence(source, reason: str):
    with pytest.raises(ImageError, match=reason):
        open_image(source)


def test_every_kind_of_photo_is_the_same_image_and_its_caption_can_be_drawn(tmp_path: Path):
    model = captioner()
    expected = model.describe(Image.fromarray(PIXELS))
    (tmp_path / "photo.png").write_bytes(stored())
    with (tmp_path / "photo.png").open("rb") as file:
        captions = model.describe([*(make() for make in SAME.values()), file])
    for kind, caption in zip([*SAME, "open file"], captions, strict=True):
        assert np.array_equal(np.asarray(open_image(caption.image)), PIXELS), kind
        assert str(caption) == str(expected), kind
    assert "img" in captions[-1].to_html()  # after the file was closed
