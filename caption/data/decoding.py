"""From an image file to upright RGB pixels. Memory stays bounded: what is too large is refused or reduced."""

from __future__ import annotations

import io
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import IO, TYPE_CHECKING, Any, TypeAlias

from PIL import Image, UnidentifiedImageError

from caption.core.errors import ImageError, printable
from caption.core.runtime.inputs import PHOTO, open_input
from caption.data.pixels import image_of_array, to_rgb

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Photo: TypeAlias = "Image.Image | str | os.PathLike[str] | np.ndarray | Tensor | bytes | IO[bytes]"

logging.getLogger("PIL").addHandler(logging.NullHandler())  # our own messages name damaged files

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

HEIF = "Save it as JPEG, or run pip install 'show-attend-and-tell[heif]'."
SLOW_PIXELS = 5_000_000
"""Pixels of an image whose decoder is written in Python and needs up to two microseconds for each."""
LARGE_PIXELS = 16_000_000
"""Of images with more pixels, one is decoded at a time, however many threads there are."""
_large_image = threading.Lock()


def open_image(source: Photo) -> Image.Image:
    """The image, upright and in RGB.

    EXIF orientation is applied. Transparent pixels are blended with white. Of an animation the first frame is used (of
    a Pillow image, its current one). Greyscale deeper than 8 bits is scaled, never clipped:

    - 16 bits: divided by 256.
    - 32-bit integers and floats: read as floats in 0...1 (floats only), as 8 bits or as 16 bits, the first of these
      ranges that holds all values; otherwise scaled from their own minimum...maximum. NaN becomes black.

    Args:
        source: the path of a file; its bytes, or an open binary file; an array or tensor of pixels (see
            `caption.data.pixels.image_of_array`); or an image opened by Pillow, which is never changed, and returned as
            it is if it is already upright and in RGB.

    Raises:
        ImageError: the source is nothing of these; or the file is missing, a folder, empty, truncated, not an image,
            larger than Pillow's limit against decompression bombs (twice `PIL.Image.MAX_IMAGE_PIXELS`, 179 million
            pixels), or decoded by Python code and larger than `SLOW_PIXELS`.
    """
    with decoded(source) as (image, *_):
        return image


@contextmanager
def decoded(
    source: Photo, excess: Callable[[int, int], float] | None = None
) -> Iterator[tuple[Image.Image, tuple[int, int], float]]:
    """An image, upright and in RGB. A large one keeps other large ones waiting until the context is left.

    Args:
        source: see `open_image`.
        excess: how many times larger than needed an upright image of this width and height is. A JPEG decoder then
            reduces the image by up to this factor. None = full resolution.

    Yields:
        the image; its (width, height) before it was reduced; how many of those pixels one of its pixels is wide.

    Raises:
        ImageError: see `open_image`.
    """
    if isinstance(source, Image.Image):
        name = str(getattr(source, "filename", "") or f"Pillow image of mode {source.mode}")
        with _pillow_errors(name):
            image = _upright(source, name)
        yield image, image.size, 1.0
    elif hasattr(source, "__array__"):
        image = _upright(image_of_array(source), f"array of type {type(source).__name__}")
        yield image, image.size, 1.0
    else:
        with _opened(source) as (file, name):
            with _pillow_errors(name):
                stored = identified(file)
            with stored:
                with _pillow_errors(name):
                    size, scale = _draft(stored, excess)
                    _check_time(stored, name)
                with _large_image if stored.width * stored.height > LARGE_PIXELS else nullcontext():
                    with _pillow_errors(name):
                        image = _upright(stored, name)
                    yield image, size or image.size, scale


@contextmanager
def _opened(source: Photo) -> Iterator[tuple[IO[bytes], str]]:
    """The file of a source, and its name for messages. A file that the caller has opened stays open."""
    stream: Any = io.BytesIO(source) if isinstance(source, (bytes, bytearray, memoryview)) else source
    if hasattr(stream, "read"):
        yield stream, str(getattr(source, "name", "") or f"image of type {type(source).__name__}")
        return
    if isinstance(source, (str, os.PathLike)):
        with open_input(source, PHOTO) as file:
            if not os.fstat(file.fileno()).st_size:
                raise ImageError(f"'{printable(os.fspath(source))}' is empty (0 bytes). Get the image again.")
            yield file, printable(os.fspath(source))
        return
    raise ImageError(
        f"an object of type {type(source).__name__} is not a photo: give a path, a Pillow image, an array, a "
        "tensor, bytes or an open file."
    )


def identified(file: IO[bytes]) -> Image.Image:
    """An image that is not decoded yet; HEIC photos, which Pillow does not know, where pillow-heif is installed."""
    _reads_heic()
    return Image.open(file)


@cache
def _reads_heic() -> bool:
    """Let Pillow read HEIC photos. Whether it can."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


def _check_time(image: Image.Image, name: str) -> None:
    """Raise an ImageError for an image that could take minutes to decode."""
    if image.format == "EPS":
        raise ImageError(f"'{name}' is PostScript, a program that draws, and not a photo. Save it as PNG.")
    pixels = image.width * image.height
    if pixels > SLOW_PIXELS and any(tile[0] in Image.DECODERS for tile in getattr(image, "tile", ())):
        raise ImageError(
            f"'{name}' has {pixels:,} pixels in a form that decodes slowly ({image.format}), more than "
            f"{SLOW_PIXELS:,}. Save it as PNG or JPEG."
        )


def _draft(
    image: Image.Image, excess: Callable[[int, int], float] | None
) -> tuple[tuple[int, int] | None, float]:
    """Let a JPEG decoder reduce the image; the upright size before and the scale, or None and 1 if it does not."""
    if excess is None:
        return None, 1.0
    width, height = image.size
    size = (height, width) if _orientation(image) in SIDEWAYS else (width, height)
    if (factor := int(excess(*size))) < 2:
        return None, 1.0
    draft = image.draft(None, (max(1, width // factor), max(1, height // factor)))
    return (None, 1.0) if draft is None else (size, width / draft[1][2])


@contextmanager
def _pillow_errors(name: str) -> Iterator[None]:
    """Turn whatever Pillow raises into an ImageError."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        raise _failure(name, error) from error


def _failure(name: str, error: Exception) -> ImageError:
    """The message for an error of Pillow, whose decoders raise almost anything for damaged files."""
    if isinstance(error, UnidentifiedImageError):
        if name.lower().endswith((".heic", ".heif")):
            remedy = "It may be damaged: get it again." if _reads_heic() else HEIF
            return ImageError(f"'{name}' is a HEIC photo, which Pillow does not read. {remedy}")
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


def _upright(image: Image.Image, name: str) -> Image.Image:
    """Decode an image, convert it to RGB and turn it; itself if it is upright RGB already."""
    image.load()
    if 0 in image.size:
        raise ImageError(f"'{name}' has no pixels: it is {image.width}×{image.height}. Give another image.")
    rgb = image if image.mode == "RGB" and not image.has_transparency_data else to_rgb(image, name)
    # After load(), in which Pillow's TIFF reader turns the image and drops the tag.
    turn = UPRIGHT.get(_orientation(image))
    if turn is None:
        return rgb
    upright = rgb.transpose(turn)
    # Without the orientation, for which a second call would turn the image again.
    profile = rgb.info.get("icc_profile")
    upright.info = {} if profile is None else {"icc_profile": profile}
    return upright


def _orientation(image: Image.Image) -> Any:
    """The EXIF orientation; 1 without one, or if the EXIF block is unreadable."""
    try:
        return image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:
        return 1
