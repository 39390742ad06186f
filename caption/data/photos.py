"""Photos: from a file or an array to upright RGB, then to the pixels of a model, with the part of the photo in them.

Memory is bounded: images that are too large are refused or reduced.
"""

from __future__ import annotations

import io
import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import IO, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from caption.core.box import Box
from caption.core.errors import DataError, ImageError, printable
from caption.core.runtime.inputs import PHOTO, open_input
from caption.data.pixels import image_of_array, to_rgb

Photo: TypeAlias = "Image.Image | str | os.PathLike[str] | np.ndarray | torch.Tensor | bytes | IO[bytes]"

Fit = Literal["squash", "crop", "pad"]

LARGEST_SIDE = 4096
"""The limit of a model's input, in pixels: 50 MB per photo. No encoder takes more."""

GAP = 3
"""Before the final resampling, which decides the pixels, photos are reduced to at least this many times the output."""

PAD_GREY = (128, 128, 128)  # middle grey, which is close to zero after any usual normalisation


class FittedPhoto(NamedTuple):
    """A photo as the input of a model."""

    pixels: torch.Tensor
    """(3, H, W) uint8, RGB."""
    size: tuple[int, int]
    """(width, height) of the photo, upright."""
    box: Box
    """The part of the photo that the pixels show, in its pixels; see `ImageTransform.box`."""
    photo: Photo
    """The photo itself, as it was given."""


@dataclass(frozen=True)
class ImageTransform:
    """Fits an image into a fixed number of pixels, and gives the part of the image that they cover.

    Bilinear with antialiasing. Normalisation is done by the encoder, because it depends on the weights.

    Args:
        size: pixels of the output: one number for a square, or (height, width).
        fit: how an image of another aspect ratio is fitted. "squash" scales both sides to the output, which distorts;
            "crop" scales the image until it fills the output and keeps its centre; "pad" scales it until it fits and
            fills the rest with middle grey on both sides.
        resize: with "crop", the pixels to which the image's shorter side is scaled before its centre is cut out, as in
            Caffe's convention of 256 and 224; None = as few as fill the output, which shows the most.

    Raises:
        DataError: a size below one pixel or above `LARGEST_SIDE`, an unknown fit; `resize` without "crop", below the
            output's sides or above `LARGEST_SIDE`.
    """

    size: int | tuple[int, int] = 224
    fit: Fit = "crop"
    resize: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.size, list):  # from YAML or JSON, which have no tuples
            object.__setattr__(self, "size", tuple(self.size))
        sides = self.size if isinstance(self.size, tuple) else (self.size, self.size)
        if len(sides) != 2 or not all(isinstance(side, int) and 1 <= side <= LARGEST_SIDE for side in sides):
            raise DataError(
                f"image size {self.size!r} is not a size: give pixels, or (height, width), from 1 to {LARGEST_SIDE}."
            )
        if not isinstance(self.fit, str) or self.fit not in get_args(Fit):
            raise DataError(f"image fit {self.fit!r} is unknown: choose one of {', '.join(get_args(Fit))}.")
        fits = isinstance(self.resize, int) and max(sides) <= self.resize <= LARGEST_SIDE
        if self.resize is not None and not (self.fit == "crop" and fits):
            raise DataError(
                f"image resize {self.resize!r} with the fit {self.fit!r}: give it with the fit 'crop' alone, as the "
                f"pixels of the shorter side, from {max(sides)} to {LARGEST_SIDE}."
            )

    @property
    def height(self) -> int:
        """Rows of the output, in pixels."""
        return self.size[0] if isinstance(self.size, tuple) else self.size

    @property
    def width(self) -> int:
        """Columns of the output, in pixels."""
        return self.size[1] if isinstance(self.size, tuple) else self.size

    def __call__(self, image: Image.Image) -> torch.Tensor:
        """The input pixels of a model (3, H, W) uint8, RGB; see `read`."""
        return self.read(image).pixels

    def read(self, photo: Photo) -> FittedPhoto:
        """Decode a photo and fit it.

        Photos many times larger than the output are reduced by whole numbers first (JPEG while it is decoded), and
        stay at least three times as large as the output. This saves memory and time, and changes pixels by rounding.

        Args:
            photo: see `caption.data.photos.open_image`.

        Raises:
            ImageError: see `open_image`.
        """
        with decoded(photo, self._excess) as (image, size, scale):
            columns, rows = self._content(*size)
            # Pillow crops at fractions of a pixel, so nothing is rounded and the box is exact.
            region = Box(*(edge / scale for edge in self._region(*size)))
            fitted = image.resize((columns, rows), Image.Resampling.BILINEAR, region, reducing_gap=GAP)
        if self.fit == "pad":
            content, fitted = fitted, Image.new("RGB", (self.width, self.height), PAD_GREY)
            fitted.paste(content, ((self.width - columns) // 2, (self.height - rows) // 2))
        # NumPy copies in this thread; torch would use all processors, which other workers need for decoding.
        pixels = torch.from_numpy(np.asarray(fitted).transpose(2, 0, 1).copy())
        return FittedPhoto(pixels, size, self.box(*size), photo)

    def _excess(self, width: int, height: int) -> float:
        """How many times smaller an image may become before it is resized."""
        left, top, right, bottom = self._region(width, height)
        columns, rows = self._content(width, height)
        return min((right - left) / columns, (bottom - top) / rows) / GAP

    def _region(self, width: int, height: int) -> Box:
        """The part of an image that the output shows, without padding."""
        return Box(0.0, 0.0, float(width), float(height)) if self.fit == "pad" else self.box(width, height)

    def box(self, width: int, height: int) -> Box:
        """The part of an image that the output covers, edge to edge.

        Args:
            width: columns of the original image, upright, in pixels.
            height: rows of it.

        Returns:
            The box in pixels of that image. With "pad" it extends beyond the image, as the output does: to negative
            coordinates and beyond the right or lower edge.
        """
        if self.fit == "squash":
            return Box(0.0, 0.0, float(width), float(height))
        if self.resize is not None:
            scale = min(width, height) / self.resize  # original pixels to one output pixel
            # Rounding may give slightly more than the photo.
            left, top = max(0.0, width - scale * self.width) / 2, max(0.0, height - scale * self.height) / 2
            return Box(left, top, width - left, height - top)
        if self.fit == "crop":  # the largest centred region with the aspect ratio of the output
            left = max(0.0, width - height * self.width / self.height) / 2
            top = max(0.0, height - width * self.height / self.width) / 2
            return Box(left, top, width - left, height - top)
        columns, rows = self._content(width, height)
        across, down = width / columns, height / rows  # original pixels to one output pixel, after rounding
        left, top = -((self.width - columns) // 2) * across, -((self.height - rows) // 2) * down
        return Box(left, top, left + self.width * across, top + self.height * down)

    def _content(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of the scaled image inside the output, in whole pixels."""
        if self.fit != "pad":
            return self.width, self.height
        if width * self.height > height * self.width:
            return self.width, max(1, round(height * self.width / width))
        return max(1, round(width * self.height / height)), self.height

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for a checkpoint."""
        size = list(self.size) if isinstance(self.size, tuple) else self.size
        return {"size": size, "fit": self.fit} | ({} if self.resize is None else {"resize": self.resize})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ImageTransform:
        """The transform that `to_dict` described.

        Raises:
            DataError: keys are missing or unknown, or values are impossible.
        """
        if set(data) - {"resize"} != {"size", "fit"}:
            raise DataError(
                f"an image transform has 'size' and 'fit', and may have 'resize', not {sorted(data)}: save it again."
            )
        return cls(**data)


# -- decoding ----------------------------------------------------------------------------------------------------

logging.getLogger("PIL").addHandler(logging.NullHandler())  # this package's messages name damaged files

ORIENTATION_TAG = 0x0112
# The transposition that undoes each EXIF orientation; 1 is upright. `ImageOps.exif_transpose` would also rewrite the
# EXIF block, which fails for odd blocks.
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

NEW_SUBFILE_TYPE, SUBFILE_TYPE = 254, 255
"""Tags of a TIFF page. It is a preview of another one if the lowest bit of the first is set, or the second is 2."""
MOST_PAGES = 1000
"""Further pages of a TIFF file are not considered."""

HEIF = "Save it as JPEG, or run pip install 'show-attend-and-tell[heif]'."
SLOW_PIXELS = 5_000_000
"""Limit of the pixels of an image whose decoder is written in Python, which takes up to two microseconds per pixel."""
LARGE_PIXELS = 16_000_000
"""Images with more pixels are decoded one at a time, however many threads there are."""
_large_image = threading.Lock()
_locks = tuple(threading.RLock() for _ in range(64))


def _lock_of(source: Photo) -> AbstractContextManager[Any]:
    """A lock for an open image: a list may have it twice, and two threads would decode its file at the same time."""
    return _locks[id(source) // 64 % len(_locks)]


def open_image(source: Photo) -> Image.Image:
    """The image, upright and in RGB.

    EXIF orientation is applied. Transparent pixels are blended with white. Of an animation the first frame is used, of
    a TIFF file the largest page (of a Pillow image, its current one). Greyscale deeper than 8 bits is scaled, never
    clipped:

    - 16 bits: divided by 256.
    - 32-bit integers and floats: read as floats in 0...1 (floats only), as 8 bits or as 16 bits, the first of these
      ranges that holds all values; otherwise scaled from their own minimum...maximum. NaN becomes black.

    Args:
        source: the path of a file; its bytes, or an open binary file; an array or tensor of pixels (see
            `caption.data.pixels.image_of_array`); or an image opened by Pillow, which is never changed, and returned as
            it is if it is already upright and in RGB.

    Raises:
        ImageError: the source is none of these; or the file is missing, a folder, empty, truncated, not an image,
            larger than Pillow's limit against decompression bombs (twice `PIL.Image.MAX_IMAGE_PIXELS`, 179 million
            pixels), decoded by Python code and larger than `SLOW_PIXELS`, or a camera's raw file.
    """
    with decoded(source) as (image, *_):
        return image


@contextmanager
def decoded(
    source: Photo, excess: Callable[[int, int], float] | None = None
) -> Iterator[tuple[Image.Image, tuple[int, int], float]]:
    """An image, upright and in RGB. Other large images wait until the context of a large one is left.

    Args:
        source: see `open_image`.
        excess: how many times larger than needed an upright image of this width and height is. A JPEG decoder then
            reduces the image by up to this factor. None = full resolution.

    Yields:
        the image; its (width, height) before it was reduced; the width of one of its pixels, in original pixels.

    Raises:
        ImageError: see `open_image`.
    """
    if isinstance(source, Image.Image):
        with _lock_of(source), _pillow_errors(source):
            image = _upright(source, source)
        yield image, image.size, 1.0
    elif hasattr(source, "__array__"):
        image = _upright(image_of_array(source), source)
        yield image, image.size, 1.0
    else:
        with _lock_of(source) if hasattr(source, "read") else nullcontext(), _opened(source) as file:
            with _pillow_errors(source):
                stored = identified(file, source)
            with stored:
                with _pillow_errors(source):
                    size, scale = _draft(stored, excess)
                    _check_time(stored, source)
                with _large_image if stored.width * stored.height > LARGE_PIXELS else nullcontext():
                    with _pillow_errors(source):
                        image = _upright(stored, source)
                    yield image, size or image.size, scale


def upright_size(source: Photo) -> tuple[int, int]:
    """(width, height) of a photo, upright; a file's pixels are not decoded.

    Raises:
        ImageError: see `open_image`.
    """
    if isinstance(source, Image.Image):
        return _upright_size(source)
    if hasattr(source, "__array__"):
        return image_of_array(source).size
    with _opened(source) as file, _pillow_errors(source), identified(file, source) as image:
        return _upright_size(image)


@contextmanager
def _opened(source: Photo) -> Iterator[IO[bytes]]:
    """The file of a source. A file that the caller has opened stays open."""
    stream: Any = io.BytesIO(source) if isinstance(source, (bytes, bytearray, memoryview)) else source
    if hasattr(stream, "read"):
        yield stream
        return
    if isinstance(source, (str, os.PathLike)):
        with open_input(source, PHOTO) as file:
            if not os.fstat(file.fileno()).st_size:
                raise ImageError(f"'{_name(source)}' is empty (0 bytes). Get the image again.")
            yield file
        return
    raise ImageError(
        f"an object of type {type(source).__name__} is not a photo: give a path, a Pillow image, an array, a "
        "tensor, bytes or an open file."
    )


def identified(file: IO[bytes], source: Photo) -> Image.Image:
    """An image that is not decoded yet; also HEIC photos, which Pillow does not read, if pillow-heif is installed.

    Args:
        file: of the image.
        source: what the user gave, for messages.

    Raises:
        ImageError: it is a camera's raw file.
        Exception: almost any other, of Pillow's readers.
    """
    _reads_heic()
    image = Image.open(file)
    if image.format == "TIFF":
        _select_largest_page(image, file, source)
    return image


def _select_largest_page(image: Any, file: IO[bytes], source: Photo) -> None:
    """Select the largest page of a TIFF file, the first one of equals.

    Raw files of cameras are TIFF files, too (DNG, NEF, ARW; CR2 with a mark of its own). Their pages are previews, and
    the photo itself is in a form that Pillow does not read.
    """
    sizes: dict[int, int] = {}
    for page in range(MOST_PAGES):
        try:
            image.seek(page)
        except EOFError:
            break
        if not (image.tag_v2.get(NEW_SUBFILE_TYPE, 0) & 1 or image.tag_v2.get(SUBFILE_TYPE) == 2):
            sizes[page] = image.width * image.height
    file.seek(8)
    if not sizes or file.read(2) == b"CR":
        raise ImageError(
            f"'{_name(source)}' has only previews that can be read: it is a camera's raw file. Save the photo as JPEG."
        )
    image.seek(max(sizes, key=sizes.__getitem__))


@cache
def _reads_heic() -> bool:
    """Let Pillow read HEIC photos, and return whether it can."""
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


def _name(source: Photo) -> str:
    """The name of a photo in messages."""
    if isinstance(source, (str, os.PathLike)):
        return printable(os.fspath(source))
    if isinstance(source, Image.Image):
        return str(getattr(source, "filename", "") or f"Pillow image of mode {source.mode}")
    kind = "array" if hasattr(source, "__array__") else "image"
    return str(getattr(source, "name", "") or f"{kind} of type {type(source).__name__}")


def _check_time(image: Image.Image, source: Photo) -> None:
    """Raise an ImageError for an image that could take minutes to decode."""
    if image.format == "EPS":
        raise ImageError(
            f"'{_name(source)}' is PostScript, a program that draws, and not a photo. Save it as PNG."
        )
    pixels = image.width * image.height
    if pixels > SLOW_PIXELS and any(tile[0] in Image.DECODERS for tile in getattr(image, "tile", ())):
        raise ImageError(
            f"'{_name(source)}' has {pixels:,} pixels in a form that decodes slowly ({image.format}), more than "
            f"{SLOW_PIXELS:,}. Save it as PNG or JPEG."
        )


def _draft(
    image: Image.Image, excess: Callable[[int, int], float] | None
) -> tuple[tuple[int, int] | None, float]:
    """Let a JPEG decoder reduce the image; the upright size before and the scale, or None and 1 if it does not."""
    if excess is None:
        return None, 1.0
    size, (width, height) = _upright_size(image), image.size
    if (factor := int(excess(*size))) < 2:
        return None, 1.0
    draft = image.draft(None, (max(1, width // factor), max(1, height // factor)))
    return (None, 1.0) if draft is None else (size, width / draft[1][2])


def _upright_size(image: Image.Image) -> tuple[int, int]:
    width, height = image.size
    return (height, width) if _orientation(image) in SIDEWAYS else (width, height)


@contextmanager
def _pillow_errors(source: Photo) -> Iterator[None]:
    """Turn any error of Pillow into an ImageError."""
    try:
        yield
    except ImageError:
        raise
    except Exception as error:
        raise _failure(_name(source), error) from error


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


def _upright(image: Image.Image, source: Photo) -> Image.Image:
    """Decode an image, convert it to RGB and turn it; itself if it is upright RGB already."""
    image.load()
    if 0 in image.size:
        raise ImageError(
            f"'{_name(source)}' has no pixels: it is {image.width}×{image.height}. Give another image."
        )
    try:
        rgb = image if image.mode == "RGB" and not image.has_transparency_data else to_rgb(image)
    except ValueError as error:
        raise ImageError(f"'{_name(source)}' is of mode {image.mode}: {error}. Save it as RGB.") from error
    # After load(), in which Pillow's TIFF reader turns the image and drops the tag.
    turn = UPRIGHT.get(_orientation(image))
    if turn is None:
        return rgb
    upright = rgb.transpose(turn)
    # Without the orientation; otherwise a second call would turn the image again.
    profile = rgb.info.get("icc_profile")
    upright.info = {} if profile is None else {"icc_profile": profile}
    return upright


def _orientation(image: Image.Image) -> Any:
    """The EXIF orientation; 1 without one, or if the EXIF block is unreadable."""
    try:
        return image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:
        return 1
