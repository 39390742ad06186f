"""From an image file to upright RGB pixels: refused, reduced and converted so that memory stays bounded.

A decoded image is held once, as its file has it. It is cut to the part that is needed, converted and reduced in strips.
Together, the images that are being decoded at one time take at most `BUDGET` bytes.
"""

from __future__ import annotations

import logging
import math
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image, UnidentifiedImageError

from caption.box import Box
from caption.data.arrays import image_of_array, stream_of
from caption.data.colours import TILE, rgb_converter
from caption.errors import ImageError

if TYPE_CHECKING:
    from caption.result import Photo

logging.getLogger("PIL").addHandler(logging.NullHandler())  # what it says of damaged files is in our messages

ORIENTATION_TAG = 0x0112
# The transposition that undoes each EXIF orientation; 1 is upright. `ImageOps.exif_transpose` would also write the
# EXIF block anew, which fails for odd ones.
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = (5, 6, 7, 8)
"""Orientations that exchange width and height."""

BUDGET = 3 << 29
"""Bytes of the images being decoded at one time, and of one image alone, by the estimate of `_bytes_needed`."""
DECODERS_OWN = {"JPEG2000": 5, "WEBP": 4, "AVIF": 3, "TIFF": 2, "GIF": 2, "DDS": 2}
"""How many times the pixels a decoder holds; 1 for the other formats."""
SLOW_PIXELS = 5_000_000
"""Pixels of an image whose decoder is written in Python and needs up to two microseconds for each."""
WHOLE = 4_000_000
"""An image of up to this many pixels is not cut and not converted in strips."""
GAP = 3
"""A reduced image stays at least this many times as large as needed, so that the final resampling decides."""


class Needed(NamedTuple):
    """What is needed of an image, upright."""

    region: Box
    """Around the image's centre, in its pixels."""
    width: int
    """Pixels to which the region is scaled."""
    height: int


Choose = Callable[[int, int], Needed]
"""A function from the width and height of an image, upright, to what is needed of it."""


class Reduced(NamedTuple):
    """An image of which a part is needed."""

    image: Image.Image
    """Upright, RGB, perhaps smaller than the original and without its margins."""
    region: Box
    """The part, in pixels of `image`."""
    width: int
    """Of the original, upright."""
    height: int


def read_image(source: Photo, choose: Choose | None = None) -> Reduced:
    """An image, upright and in RGB; for the sources and for depth, transparency and orientation see `open_image`.

    Args:
        source: as for `open_image`.
        choose: what is needed of it; None = all, in full resolution.

    Raises:
        ImageError: see `open_image`.
    """
    if isinstance(source, Image.Image):
        return _read(
            source, str(getattr(source, "filename", "") or f"Pillow image of mode {source.mode}"), choose
        )
    if hasattr(source, "__array__"):
        return _read(image_of_array(source), f"array of type {type(source).__name__}", choose)
    with _opened(source) as (image, name):
        full = _draft(image, choose)
        with _reserved(_bytes_needed(image, name)):
            return _read(image, name, choose, full)


def rgb_strips(path: Path) -> Iterator[Image.Image]:
    """The rows of an image file in strips, from above, upright and in RGB. ImageError: see `open_image`."""
    with _opened(path) as (image, name), _reserved(_bytes_needed(image, name)):
        _load(image, name)
        turn = UPRIGHT.get(_orientation(image))
        upright = image if turn is None else image.transpose(turn)
        convert = rgb_converter(upright, name)
        rows = max(1, WHOLE // upright.width)
        for top in range(0, upright.height, rows):
            yield convert(upright.crop((0, top, upright.width, min(top + rows, upright.height))))


@contextmanager
def _opened(source: Photo) -> Iterator[tuple[Image.Image, str]]:
    """A file, not yet decoded, and its name for messages. Whatever Pillow raises becomes an ImageError."""
    if (stream := stream_of(source)) is not None:
        name = str(getattr(source, "name", "") or f"image of type {type(source).__name__}")
    elif isinstance(source, (str, os.PathLike)):
        name = os.fspath(source)
        _check_file(Path(source))
    else:
        raise ImageError(
            f"an object of type {type(source).__name__} is not a photo: give a path, a Pillow image, an array, a "
            "tensor, bytes or an open file."
        )
    try:
        with Image.open(Path(name) if stream is None else stream) as image:
            yield image, name
    except ImageError:
        raise
    except Exception as error:
        raise _failure(name, error) from error


# -- before decoding -------------------------------------------------------------------------------------------


def _check_file(path: Path) -> None:
    """Raise an ImageError unless `path` is a regular file that is not empty."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a null character in the name
        raise ImageError(f"'{path}' does not exist. Check the path of the image.") from None
    except OSError as error:
        raise ImageError(f"'{path}' cannot be read: {error.strerror}. Check the path of the image.") from None
    if stat.S_ISDIR(status.st_mode):
        raise ImageError(f"'{path}' is a folder, not an image. Name the image files in it.")
    if not stat.S_ISREG(status.st_mode):
        raise ImageError(f"'{path}' is not a regular file. Give an image file.")
    if status.st_size == 0:
        raise ImageError(f"'{path}' is empty (0 bytes). Get the image again.")


def _draft(image: Image.Image, choose: Choose | None) -> tuple[int, int] | None:
    """Let a JPEG decoder reduce the image while it decodes; returns the size before. None for other formats."""
    if choose is None or image.format not in ("JPEG", "MPO"):
        return None
    width, height = image.size
    across, down = _factors(_needed(choose, width, height, sideways=_orientation(image) in SIDEWAYS))
    image.draft(None, (max(1, width // across), max(1, height // down)))
    return width, height


def _bytes_needed(image: Image.Image, name: str) -> int:
    """The memory that decoding takes. Raises an ImageError for an image that takes too much memory or time."""
    if image.format == "EPS":
        raise ImageError(f"'{name}' is PostScript, a program that draws, and not a photo. Save it as PNG.")
    pixels = image.width * image.height
    if pixels > SLOW_PIXELS and any(tile[0] in Image.DECODERS for tile in getattr(image, "tile", ())):
        raise ImageError(
            f"'{name}' has {pixels:,} pixels in a form that decodes slowly ({image.format}), more than "
            f"{SLOW_PIXELS:,}. Save it as PNG or JPEG."
        )
    each = {"1": 1, "L": 1, "P": 1, "I;16": 2}.get(image.mode, 4)
    needed = pixels * each * DECODERS_OWN.get(image.format or "", 1)
    if needed > BUDGET:
        raise ImageError(
            f"'{name}' is too large to open safely: decoding its {pixels:,} pixels would take "
            f"{needed / 2**30:.1f} GiB. Scale it down first."
        )
    return needed


class _Budget:
    def __init__(self) -> None:
        self.used = 0
        self.change = threading.Condition()


_budget = _Budget()


@contextmanager
def _reserved(needed: int) -> Iterator[None]:
    """Wait until `needed` bytes are free of the budget, and take them."""
    with _budget.change:
        _budget.change.wait_for(lambda: _budget.used + needed <= BUDGET or _budget.used == 0)
        _budget.used += needed
    try:
        yield
    finally:
        with _budget.change:
            _budget.used -= needed
            _budget.change.notify_all()


def _failure(name: str, error: Exception) -> ImageError:
    """The message for an error of Pillow, whose decoders raise almost anything for damaged files."""
    if isinstance(error, UnidentifiedImageError):
        if name.lower().endswith((".heic", ".heif")):
            return ImageError(f"'{name}' is a HEIC photo, which Pillow does not read. Save it as JPEG.")
        return ImageError(
            f"'{name}' is not an image, or its beginning is damaged. Give a JPEG, PNG or the like."
        )
    if isinstance(error, Image.DecompressionBombError):
        return ImageError(f"'{name}' is too large to open safely: {error} Scale it down first.")
    if isinstance(error, OSError) and error.errno is not None:
        return ImageError(f"'{name}' cannot be read: {error.strerror}.")
    if isinstance(error, MemoryError):
        return ImageError(f"'{name}' is too large for the memory. Scale it down first.")
    reason = " ".join(str(error).split()) or type(error).__name__
    return ImageError(f"'{name}' is truncated or damaged ({reason}). Get the image again.")


# -- decoding --------------------------------------------------------------------------------------------------


def _load(image: Image.Image, name: str) -> None:
    try:
        image.load()
    except Exception as error:
        raise _failure(name, error) from error
    if 0 in image.size:
        raise ImageError(f"'{name}' has no pixels: it is {image.width}×{image.height}. Give another image.")


def _read(
    image: Image.Image, name: str, choose: Choose | None, full: tuple[int, int] | None = None
) -> Reduced:
    """For `full` see `_draft`."""
    _load(image, name)
    # After load(), in which Pillow's TIFF reader turns the image and drops the tag.
    orientation = _orientation(image)
    full = full or image.size
    sideways = orientation in SIDEWAYS
    width, height = full[::-1] if sideways else full
    cut, factors = (0, 0, *image.size), (1, 1)
    region = Box(0.0, 0.0, *map(float, image.size))
    if choose is not None:
        needed = _needed(choose, *full, sideways)
        drafted = max(1, round(full[0] / image.width), round(full[1] / image.height))
        region = Box(*(edge / drafted for edge in needed.region))
        needed = needed._replace(region=region)
        factors = _factors(needed)
        if factors != (1, 1) or image.width * image.height > WHOLE:
            cut = _cut(needed, factors, image.size)
    rgb = _reduced(image, cut, factors, rgb_converter(image, name))
    left, top, right, bottom = region
    (across, down), (x, y) = factors, cut[:2]
    region = Box((left - x) / across, (top - y) / down, (right - x) / across, (bottom - y) / down)
    if (turn := UPRIGHT.get(orientation)) is not None:
        region = _turned(region, rgb.size, orientation)
        rgb = rgb.transpose(turn)
        rgb.info.clear()  # otherwise a second call would see the orientation and turn the image again
    return Reduced(rgb, region, width, height)


def _needed(choose: Choose, width: int, height: int, sideways: bool) -> Needed:
    """What is needed of an image as its file has it. Its centre is where the upright image has it."""
    if not sideways:
        return choose(width, height)
    (left, top, right, bottom), columns, rows = choose(height, width)
    return Needed(Box(top, left, bottom, right), rows, columns)


def _factors(needed: Needed) -> tuple[int, int]:
    """By what whole numbers the columns and rows may be reduced."""
    left, top, right, bottom = needed.region
    across, down = (right - left) / needed.width, (bottom - top) / needed.height
    return max(1, int(across / GAP)), max(1, int(down / GAP))


def _cut(needed: Needed, factors: tuple[int, int], size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The pixels that resampling reads: beyond the region's edges as many as one pixel of the output covers."""
    left, top, right, bottom = needed.region
    x = math.ceil(max(1.0, (right - left) / needed.width)) + factors[0]
    y = math.ceil(max(1.0, (bottom - top) / needed.height)) + factors[1]
    low = max(0, math.floor(left) - x), max(0, math.floor(top) - y)
    return *low, min(size[0], math.ceil(right) + x), min(size[1], math.ceil(bottom) + y)


def _reduced(
    image: Image.Image,
    cut: tuple[int, int, int, int],
    factors: tuple[int, int],
    convert: Callable[[Image.Image], Image.Image],
) -> Image.Image:
    """A part of an image, converted and then reduced, tile by tile."""
    left, top, right, bottom = cut
    done = factors == (1, 1) and image.mode == "RGB" and not image.has_transparency_data
    if cut == (0, 0, *image.size) and (done or image.width * image.height <= WHOLE):
        rgb = convert(image)
        return rgb if factors == (1, 1) else rgb.reduce(factors)
    across, down = factors
    found = Image.new("RGB", (-(-(right - left) // across), -(-(bottom - top) // down)))
    if "icc_profile" in image.info:  # the page embeds it with the photo
        found.info["icc_profile"] = image.info["icc_profile"]
    columns, rows = (factor * max(1, TILE // factor) for factor in factors)
    for y in range(top, bottom, rows):
        for x in range(left, right, columns):
            tile = convert(image.crop((x, y, min(x + columns, right), min(y + rows, bottom))))
            reduced = tile if factors == (1, 1) else tile.reduce(factors)
            found.paste(reduced, ((x - left) // across, (y - top) // down))
    return found


def _turned(box: Box, size: tuple[int, int], orientation: int) -> Box:
    """Where a box lies after the transposition that undoes an EXIF orientation."""
    (left, top, right, bottom), (width, height) = box, size
    if orientation in (2, 3, 7, 8):
        left, right = width - right, width - left
    if orientation in (3, 4, 6, 7):
        top, bottom = height - bottom, height - top
    return Box(top, left, bottom, right) if orientation in SIDEWAYS else Box(left, top, right, bottom)


def _orientation(image: Image.Image) -> Any:
    """The EXIF orientation; 1 if there is none, or the EXIF block is unreadable."""
    try:
        return image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:
        return 1
