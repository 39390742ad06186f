"""The pixels of the model, and the box: the part of the photo that they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.pictures import corners, scene
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from caption.core.box import Box
from caption.core.errors import DataError
from caption.data.photos import ORIENTATION_TAG, PAD_GREY, ImageTransform, decoded, open_image

FITS = ("squash", "crop", "pad")
TRANSFORMS = [
    ImageTransform(32, "squash"),
    ImageTransform((24, 40), "crop"),
    ImageTransform((24, 40), "crop", 48),
    ImageTransform((40, 24), "pad"),
]


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("size", [(96, 160), (31, 8), (1, 1)])
def test_the_output_has_the_requested_size(fit: str, size: tuple[int, int]):
    for original in [(640, 301), (301, 640), (5, 5), (1, 300), (300, 1), (1, 1)]:
        pixels = ImageTransform(size, fit)(Image.new("RGB", original, (200, 100, 50)))
        assert (pixels.shape, pixels.dtype) == ((3, *size), torch.uint8)
        assert pixels.is_contiguous()
        assert (pixels == torch.tensor([200, 100, 50], dtype=torch.uint8)[:, None, None]).all(0).any()


def with_marker(width: int, height: int, x: float, y: float, radius: float) -> Image.Image:
    """A white disc on black, its centre at (x, y) in pixels from the outer corner."""
    rows, columns = np.arange(height)[:, None] + 0.5, np.arange(width) + 0.5
    distance = np.sqrt((columns - x) ** 2 + (rows - y) ** 2)
    return Image.fromarray((255 * np.clip(radius + 0.5 - distance, 0, 1)).astype(np.uint8)).convert("RGB")


def located(pixels: torch.Tensor, box: Box) -> tuple[float, float]:
    """The marker's centre in original pixels, measured in the output and mapped back with the box."""
    light = pixels[0].double()
    light = torch.where(light == PAD_GREY[0], 0.0, light)  # padding is not the marker
    height, width = light.shape
    x = (light.sum(0) @ (torch.arange(width) + 0.5).double() / light.sum()).item()
    y = (light.sum(1) @ (torch.arange(height) + 0.5).double() / light.sum()).item()
    return (
        box.left + x / width * (box.right - box.left),
        box.top + y / height * (box.bottom - box.top),
    )


@pytest.mark.parametrize(("fit", "resize"), [*((fit, None) for fit in FITS), ("crop", 256)])
@pytest.mark.parametrize("size", [224, (96, 161), (150, 77)])
@pytest.mark.parametrize("original", [(640, 301), (301, 517), (450, 450), (1001, 143), (64, 48)])
def test_a_marker_survives_the_round_trip(
    fit: str, resize: int | None, size: int | tuple[int, int], original: tuple[int, int]
):
    """Exact to a quarter of a resized pixel, at any position."""
    width, height = original
    transform = ImageTransform(size, fit, resize)
    box = transform.box(width, height)
    across = (box.right - box.left) / transform.width
    down = (box.bottom - box.top) / transform.height
    radius = 2.5 * max(across, down, 1)
    left, right = max(box.left, 0) + 2 * radius, min(box.right, width) - 2 * radius
    top, bottom = max(box.top, 0) + 2 * radius, min(box.bottom, height) - 2 * radius
    for x, y in [(left, top), (right, top), (left, bottom), ((left + right) / 2, (top + bottom) / 2)]:
        found_x, found_y = located(transform(with_marker(width, height, x, y, radius)), box)
        assert abs(found_x - x) < max(across / 4, 0.1)
        assert abs(found_y - y) < max(down / 4, 0.1)


@pytest.mark.parametrize(
    ("original", "content"),
    [
        ((640, 340), (120, 64)),  # 63.75 rows
        ((301, 640), (46, 97)),  # 45.6 columns
        ((999, 10), (120, 1)),
    ],
)
def test_the_padding_matches_the_box(original: tuple[int, int], content: tuple[int, int]):
    """Grey begins exactly at the row where the box leaves the image, and is centred to whole pixels."""
    transform = ImageTransform((97, 120), "pad")
    grey = (transform(Image.new("RGB", original, "white")) == PAD_GREY[0]).all(0)
    box = transform.box(*original)
    across, down = (box.right - box.left) / 120, (box.bottom - box.top) / 97
    columns, rows = (~grey).any(0).nonzero().flatten(), (~grey).any(1).nonzero().flatten()
    assert (len(columns), len(rows)) == content
    assert columns[0].item() == pytest.approx(-box.left / across)
    assert rows[0].item() == pytest.approx(-box.top / down)
    assert columns[-1].item() + 1 == pytest.approx((original[0] - box.left) / across)
    assert rows[-1].item() + 1 == pytest.approx((original[1] - box.top) / down)
    assert abs(columns[0] - (119 - columns[-1])) <= 1
    assert abs(rows[0] - (96 - rows[-1])) <= 1


@given(
    width=st.integers(1, 6000),
    height=st.integers(1, 6000),
    rows=st.integers(1, 512),
    columns=st.integers(1, 512),
)
@settings(deadline=None)
def test_area_that_each_fit_covers(width: int, height: int, rows: int, columns: int):
    """Squash: all of the image. Crop: a centred part, undistorted, touching two edges. Pad: all and more."""
    squash, crop, pad = (ImageTransform((rows, columns), fit).box(width, height) for fit in FITS)
    assert squash == (0, 0, width, height)
    left, top, right, bottom = crop
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    assert left == 0 or top == 0
    assert left + right == pytest.approx(width)
    assert top + bottom == pytest.approx(height)
    assert (right - left) * rows == pytest.approx((bottom - top) * columns)
    slack = 1e-9 * max(width, height)
    assert pad.left <= 0
    assert pad.top <= 0
    assert pad.right >= width - slack
    assert pad.bottom >= height - slack
    assert pad.left == 0 or pad.top == 0


def test_channels_and_rows_are_in_order():
    pixels = ImageTransform((24, 40))(Image.fromarray(corners()))
    np.testing.assert_array_equal(pixels.permute(1, 2, 0).numpy(), corners())


def test_round_trip_through_plain_types():
    for transform in (*TRANSFORMS, ImageTransform(), ImageTransform(resize=256)):
        data = json.loads(json.dumps(transform.to_dict()))
        assert ImageTransform.from_dict(data) == transform
        assert data == transform.to_dict()
    for data in ({"size": 224}, {"size": 224, "resize": 256}):
        with pytest.raises(DataError, match="'size' and 'fit'"):
            ImageTransform.from_dict(data)


WRONG = [
    *(({"size": size}, "size") for size in (0, -3, (0, 5), (30_000, 30_000), (1, 2, 3), 2.5, "224")),
    ({"fit": "stretch"}, "squash, crop, pad"),
    ({"resize": 223}, "from 224 to 4096"),
    ({"resize": 256.5}, "256.5"),
    ({"size": (100, 300), "resize": 256}, "from 300 to 4096"),
    ({"fit": "squash", "resize": 256}, "with the fit 'squash': give it with the fit 'crop'"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=str)
def test_options_that_are_none(options: dict[str, Any], message: str):
    with pytest.raises(DataError, match=message):
        ImageTransform(**options)


# -- resized, then cut out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "original", "box"),
    [
        (224, (512, 512), (32, 32, 480, 480)),
        (224, (640, 512), (96, 32, 544, 480)),
        (224, (128, 384), (8, 136, 120, 248)),
        ((112, 224), (512, 640), (32, 208, 480, 432)),
        (256, (300, 256), (22, 0, 278, 256)),
    ],
)
def test_a_resized_image_shows_its_centre(size, original: tuple[int, int], box: tuple[int, ...]):
    """Numbers worked out by hand: the shorter side is 256 pixels, of which the output has the middle ones."""
    transform = ImageTransform(size, "crop", 256)
    assert transform.box(*original) == box
    assert transform(Image.new("RGB", original)).shape == (3, transform.height, transform.width)


def test_rounding_keeps_the_box_within_the_photo():
    """29 / 224 * 224 is more than 29. Pillow refuses a box that begins before the photo."""
    transform = ImageTransform(224, "crop", 224)
    for side in (29, 58, 116, 464):
        assert transform.box(side, side + 7)[::2] == (0, side)
        assert transform.read(Image.new("RGB", (side + 7, side))).box[1::2] == (0, side)


# -- large photos, which are reduced first ----------------------------------------------------------------------


def plainly(path: Path, transform: ImageTransform, gap: float | None = None) -> np.ndarray:
    """Decoded whole, then resampled once; with a gap, Pillow reduces it first."""
    image = open_image(path)
    columns, rows = transform._content(*image.size)
    fitted = image.resize(
        (columns, rows), Image.Resampling.BILINEAR, transform._region(*image.size), reducing_gap=gap
    )
    whole = Image.new("RGB", (transform.width, transform.height), (128, 128, 128))
    whole.paste(fitted, ((transform.width - columns) // 2, (transform.height - rows) // 2))
    return np.asarray(whole).transpose(2, 0, 1).astype(int)


@pytest.mark.parametrize("transform", TRANSFORMS, ids=lambda transform: transform.fit)
@pytest.mark.parametrize(
    ("kind", "orientation"), [("jpg", 1), ("jpg", 4), ("jpg", 6), ("jpg", 7), ("png", 6), ("tif", 8)]
)
def test_a_large_photo_is_reduced_and_looks_the_same(tmp_path, kind, orientation, transform):
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = orientation
    path = tmp_path / f"photo.{kind}"
    scene(901, 607).save(path, exif=exif, **({"quality": 95} if kind == "jpg" else {}))
    read = transform.read(path)
    assert read.size == ((607, 901) if orientation > 4 else (901, 607))
    assert (read.box, read.photo) == (transform.box(*read.size), path)
    assert np.abs(read.pixels.numpy() - plainly(path, transform)).max() <= 4
    with decoded(path, transform._excess) as (image, size, scale):
        assert size == read.size
        assert image.size == tuple(-(-side // scale) for side in size)
        assert scale == ((8 if transform.fit == "pad" else 4) if kind == "jpg" else 1)
    if kind == "jpg":
        asked: list[tuple[int, int]] = []
        with decoded(path, lambda *size: asked.append(size) or 1.0):
            assert asked == [read.size]  # upright
    else:
        assert np.array_equal(read.pixels, plainly(path, transform, gap=3))


@pytest.mark.parametrize("fit", FITS)
def test_photos_of_usual_size_keep_every_bit(tmp_path, fit):
    transform, path = ImageTransform(224, fit), tmp_path / "photo.jpg"
    exif = Image.Exif()
    exif[ORIENTATION_TAG] = 6
    scene(500, 375).save(path, exif=exif)
    assert np.array_equal(transform.read(path).pixels, plainly(path, transform))
