"""Pixels of any kind become RGB: modes of files, arrays, tensors."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.pictures import corners, saved, scene
from helpers.tiny_captioner import captioner, photo
from PIL import Image

from caption.core.errors import ImageError
from caption.data import pixels as pixels_module
from caption.data.photos import ORIENTATION_TAG, open_image


def test_colours_survive_palette_and_cmyk(tmp_path: Path):
    image = Image.fromarray(corners())
    palette = open_image(saved(image.quantize(8), tmp_path / "palette.png"))
    np.testing.assert_array_equal(np.asarray(palette), corners())
    cmyk = open_image(saved(image.convert("CMYK"), tmp_path / "cmyk.jpg", quality=95))
    assert np.median(np.abs(np.asarray(cmyk, int) - corners())) <= 3


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_is_laid_over_white(tmp_path: Path, mode: str):
    rgba = Image.new("RGBA", (8, 4), (0, 0, 0, 255))
    rgba.paste((0, 0, 0, 0), (0, 0, 4, 4))
    image = rgba.quantize(4) if mode == "P" else rgba.convert(mode)
    pixels = open_image(saved(image, tmp_path / "clear.png"))
    assert pixels.getpixel((0, 0)) == (255, 255, 255)
    assert pixels.getpixel((7, 0)) == (0, 0, 0)
    assert open_image(Image.new("RGBA", (2, 2), (0, 0, 0, 128))).getpixel((0, 0)) == (127, 127, 127)


@pytest.mark.parametrize(("mode", "clear"), [("L", 10), ("RGB", (10, 10, 10)), ("P", 0)])
def test_a_transparent_colour_key_is_laid_over_white(tmp_path: Path, mode: str, clear: object):
    image = Image.new("RGB", (4, 4), (10, 10, 10))
    image.paste((90, 90, 90), (2, 0, 4, 4))
    keyed = image.quantize(2) if mode == "P" else image.convert(mode)
    if mode == "P":
        clear = keyed.getpixel((0, 0))
    pixels = open_image(saved(keyed, tmp_path / "keyed.png", transparency=clear))
    assert pixels.getpixel((0, 0)) == (255, 255, 255)
    assert pixels.getpixel((3, 0)) == (90, 90, 90)


def test_sixteen_bits_are_divided_by_256_not_clipped(tmp_path: Path):
    values = np.linspace(0, 65535, 64).astype(np.uint16).reshape(8, 8)
    image = Image.fromarray(values)
    big_endian = Image.frombytes("I;16B", (8, 8), values.astype(">u2").tobytes())
    for deep in (saved(image, tmp_path / "deep.png"), saved(image, tmp_path / "deep.tif"), big_endian):
        np.testing.assert_array_equal(np.asarray(open_image(deep))[..., 0], values // 256)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 100, 255]], np.int32), [0, 100, 255]),  # 8 bits in 32
        (np.array([[0, 256, 65535]], np.int32), [0, 1, 255]),  # 16 bits in 32
        (np.array([[-1000, 0, 1000]], np.int32), [0, 128, 255]),  # neither: stretched
        (np.array([[0.0, 0.2, 1.0]], np.float32), [0, 51, 255]),
        (np.array([[0.0, 51.0, 255.0]], np.float32), [0, 51, 255]),
        (np.array([[0.0, 512.0, 65535.0]], np.float32), [0, 2, 255]),
        (np.array([[np.nan, 0.5, np.inf]], np.float32), [0, 128, 128]),
        (np.array([[-7.0, -7.0, np.nan]], np.float32), [0, 0, 0]),
        (np.array([[np.nan, np.nan, np.nan]], np.float32), [0, 0, 0]),
    ],
)
@pytest.mark.filterwarnings("error")
def test_32_bit_greyscale_is_scaled(tmp_path: Path, values: np.ndarray, expected: list[int]):
    path = saved(Image.fromarray(values), tmp_path / "deep.tif")
    assert np.asarray(open_image(path))[0, :, 0].tolist() == expected


@pytest.mark.parametrize(
    "mode",
    ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "HSV", "I;16", "I", "F"],
)
def test_every_mode_becomes_rgb_in_strips_as_in_one_piece(mode: str, monkeypatch: pytest.MonkeyPatch):
    image = scene(150, 110)
    if mode in ("I;16", "I", "F"):
        values = np.asarray(image.convert("L"), float) * 300 - (0 if mode == "I;16" else 5000)
        image = Image.fromarray(values.astype({"I;16": "<u2", "I": "<i4", "F": "<f4"}[mode]))
    elif "A" in mode:
        image.putalpha(image.getchannel(0))
    image = image.convert("P").convert("PA") if mode == "PA" else image.convert(mode)
    whole = open_image(image)
    assert (whole.mode, whole.size) == ("RGB", (150, 110))
    monkeypatch.setattr(pixels_module, "STRIP_PIXELS", 1000)
    assert np.array_equal(np.asarray(open_image(image)), np.asarray(whole))


def test_a_mode_that_pillow_cannot_convert_is_named():
    with pytest.raises(ImageError, match="mode La"):
        open_image(Image.new("LA", (4, 4)).convert("La"))


@pytest.mark.parametrize(("mode", "orientation"), [("RGB", 6), ("CMYK", 1)])
def test_the_colour_profile_is_kept(tmp_path: Path, mode: str, orientation: int):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    scene(90, 60).convert(mode).save(tmp_path / "photo.jpg", icc_profile=b"wide gamut", exif=exif)
    assert open_image(tmp_path / "photo.jpg").info["icc_profile"] == b"wide gamut"


# -- photos in memory ------------------------------------------------------------------------------------

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
