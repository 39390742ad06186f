"""From an image file to the pixels of the model, and the part of the photo that these pixels cover."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from caption.data.arrays import image_of_array, stream_of
from caption.data.boxes import Box as Box
from caption.errors import DataError, ImageError

if TYPE_CHECKING:
    from caption.result import Photo

Fit = Literal["squash", "crop", "pad"]

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
LARGEST_SIDE = 4096
"""Of a model's input, in pixels: 50 MB per photo. No encoder takes more."""

PAD_GREY = (128, 128, 128)  # middle grey, which is close to zero after any usual normalisation


def open_image(source: Photo) -> Image.Image:
    """The image, upright and in RGB.

    EXIF orientation is applied. Transparent pixels are blended with white. Of an animation the first frame is used (of
    a Pillow image, its current one). Greyscale deeper than 8 bits is scaled, never clipped:

    - 16 bits: divided by 256.
    - 32-bit integers and floats: read as floats in 0...1 (floats only), as 8 bits or as 16 bits, the first of these
      ranges that holds all values; otherwise scaled from their own minimum...maximum. NaN becomes black.

    Args:
        source: the path of a file; its bytes, or an open binary file; an array or tensor of pixels (see
            `caption.data.arrays.image_of_array`); or an image opened by Pillow, which is never changed, and returned as
            it is if it is already upright and in RGB.

    Raises:
        ImageError: the source is nothing of these; or the file is missing, a folder, empty, truncated, not an image, or
            larger than Pillow's limit against decompression bombs (twice `PIL.Image.MAX_IMAGE_PIXELS`, 179 million
            pixels).
    """
    if isinstance(source, Image.Image):
        return _decoded(source, str(getattr(source, "filename", "") or f"Pillow image of mode {source.mode}"))
    if (stream := stream_of(source)) is not None:
        return _opened(stream, str(getattr(source, "name", "") or f"image of type {type(source).__name__}"))
    if hasattr(source, "__array__"):
        return image_of_array(source).convert("RGB")
    if not isinstance(source, (str, os.PathLike)):
        raise ImageError(
            f"an object of type {type(source).__name__} is not a photo: give a path, a Pillow image, an array, a "
            "tensor, bytes or an open file."
        )
    path = Path(source)
    _check_file(path)
    return _opened(path, str(path))


def _opened(file: Path | IO[bytes], name: str) -> Image.Image:
    try:
        with Image.open(file) as image:
            return _decoded(image, name)
    except ImageError:
        raise
    except Exception as error:
        raise _failure(name, error) from error


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


def _failure(name: str, error: Exception) -> ImageError:
    """The message for an error of Pillow, whose decoders raise almost anything for damaged files."""
    if isinstance(error, UnidentifiedImageError):
        return ImageError(
            f"'{name}' is not an image, or its beginning is damaged. Give a JPEG, PNG or the like."
        )
    if isinstance(error, Image.DecompressionBombError):
        return ImageError(f"'{name}' is too large to open safely: {error} Scale it down first.")
    if isinstance(error, OSError) and error.errno is not None:
        return ImageError(f"'{name}' cannot be read: {error.strerror}.")
    if isinstance(error, MemoryError):
        return ImageError(f"'{name}' is too large for the memory. Scale it down first.")
    reason = str(error) or type(error).__name__
    return ImageError(f"'{name}' is truncated or damaged ({reason}). Get the image again.")


def _decoded(image: Image.Image, name: str) -> Image.Image:
    """`image` loaded, upright, in RGB."""
    try:
        image.load()
    except Exception as error:
        raise _failure(name, error) from error
    if 0 in image.size:
        raise ImageError(f"'{name}' has no pixels: it is {image.width}×{image.height}. Give another image.")
    # After load(), in which Pillow's TIFF reader turns the image and drops the tag.
    turn = UPRIGHT.get(_orientation(image))
    try:
        rgb = _to_rgb(image)
    except ValueError as error:
        raise ImageError(f"'{name}' is of mode {image.mode}: {error}. Save it as RGB.") from error
    if turn is not None:
        rgb = rgb.transpose(turn)
        rgb.info.clear()  # otherwise a second call would see the orientation and turn the image again
    return rgb


def _orientation(image: Image.Image) -> Any:
    """The EXIF orientation; 1 if there is none, or the EXIF block is unreadable."""
    try:
        return image.getexif().get(ORIENTATION_TAG, 1)
    except Exception:
        return 1


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        return Image.fromarray(_scaled_to_bytes(np.asarray(image))).convert("RGB")
    if image.has_transparency_data:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _scaled_to_bytes(values: np.ndarray) -> np.ndarray:
    """32-bit greyscale (H, W) as uint8 (H, W), by the rule in `open_image`."""
    real = np.asarray(values, dtype=np.float64)
    finite = real[np.isfinite(real)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    unknown = np.isnan(real)
    real = np.nan_to_num(real, posinf=high, neginf=low)
    if low >= 0 and high <= 1 and values.dtype.kind == "f":
        scaled = real * 255
    elif low >= 0 and high <= 255:
        scaled = real
    elif low >= 0 and high <= 65535:
        scaled = np.floor(real / 256)
    else:
        scaled = (real - low) / ((high - low) or 1.0) * 255
    return np.where(unknown, 0, np.rint(scaled)).astype(np.uint8)


@dataclass(frozen=True)
class ImageTransform:
    """Fits an image into a fixed number of pixels, and gives the part of the image that they cover.

    Bilinear with antialiasing. Normalisation is done by the encoder, because it depends on the weights.

    Args:
        size: pixels of the output: one number for a square, or (height, width).
        fit: how an image of another aspect ratio is fitted. "squash" scales both sides to the output, which distorts;
            "crop" scales the image until it fills the output and keeps its centre; "pad" scales it until it fits and
            fills the rest with middle grey on both sides.

    Raises:
        DataError: a size below one pixel or above `LARGEST_SIDE`, an unknown fit.
    """

    size: int | tuple[int, int] = 224
    fit: Fit = "crop"

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

    @property
    def height(self) -> int:
        """Rows of the output, in pixels."""
        return self.size[0] if isinstance(self.size, tuple) else self.size

    @property
    def width(self) -> int:
        """Columns of the output, in pixels."""
        return self.size[1] if isinstance(self.size, tuple) else self.size

    def __call__(self, image: Image.Image) -> torch.Tensor:
        """The input pixels of a model.

        Args:
            image: of any size; `open_image` makes it upright and RGB.

        Returns:
            (3, H, W) uint8, RGB.

        Raises:
            ImageError: the image cannot be decoded.
        """
        image = open_image(image)
        if self.fit == "pad":
            width, height = self._content(image.width, image.height)
            fitted = Image.new("RGB", (self.width, self.height), PAD_GREY)
            content = image.resize((width, height), Image.Resampling.BILINEAR)
            fitted.paste(content, ((self.width - width) // 2, (self.height - height) // 2))
        else:
            # Pillow crops at fractions of a pixel, so nothing is rounded and the box is exact.
            region = self.box(image.width, image.height)
            fitted = image.resize((self.width, self.height), Image.Resampling.BILINEAR, box=region)
        # NumPy copies in this thread; torch would use all processors, which other workers need for decoding.
        return torch.from_numpy(np.asarray(fitted).transpose(2, 0, 1).copy())

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
        if self.fit == "crop":  # the largest centred region with the aspect ratio of the output
            left = max(0.0, width - height * self.width / self.height) / 2
            top = max(0.0, height - width * self.height / self.width) / 2
            return Box(left, top, width - left, height - top)
        columns, rows = self._content(width, height)
        across, down = width / columns, height / rows  # original pixels to one output pixel, after rounding
        left, top = -((self.width - columns) // 2) * across, -((self.height - rows) // 2) * down
        return Box(left, top, left + self.width * across, top + self.height * down)

    def _content(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of the scaled image inside the padding, in whole pixels."""
        if width * self.height > height * self.width:
            return self.width, max(1, round(height * self.width / width))
        return max(1, round(width * self.height / height)), self.height

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for a checkpoint."""
        size = list(self.size) if isinstance(self.size, tuple) else self.size
        return {"size": size, "fit": self.fit}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ImageTransform:
        """The transform that `to_dict` described.

        Raises:
            DataError: keys are missing or unknown, or values are impossible.
        """
        if set(data) != {"size", "fit"}:
            raise DataError(f"an image transform has 'size' and 'fit', not {sorted(data)}: save it again.")
        return cls(**data)
