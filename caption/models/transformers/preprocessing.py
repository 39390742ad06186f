"""The preprocessing of a foreign model: pixels from its own image processor, and the part of the photo they cover."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image

from caption.core.box import Box
from caption.core.errors import UserError
from caption.data.photos import FittedPhoto, ImageTransform, open_image
from caption.models.transformers.encoder import cannot_be_saved

if TYPE_CHECKING:
    from caption.data.photos import Photo


CHECKED_SIZES = ((96, 64), (640, 960))
"""(width, height) of photos: a small one that is wide, and a large one that is high."""
PLACES = ((0.25, 0.25), (0.7, 0.4), (0.4, 0.75))
"""Centres (x, y) of blobs, as shares of the visible part of a photo. Three that are not on a line determine shifts,
scales, turns and reflections."""
BLOB = 0.2
"""Sides of a blob, as shares of the visible part of a photo."""
TOLERANCE = 0.01
"""Maximal distance of a blob's centre from its place, as a share of the sides of the input."""


class ProcessorTransform(ImageTransform):
    """The normalised output of an image processor of transformers, and the part of a photo that it covers.

    Supports processors that resize to fixed sides or by the shorter or longer side, cut out the centre, and pad at the
    right and the lower edge.

    Args:
        processor: the image processor.

    Raises:
        UserError: the processor states no size, its output has another size, or parts of a photo are not where `box`
            places them, because the processor works in another way.
    """

    processor: Any

    def __init__(self, processor: Any) -> None:
        name = type(processor).__name__
        stated = [
            _sides(getattr(processor, size, None)) for size, step in STEPS.items() if _does(processor, step)
        ]
        sizes = [sides for sides in stated if "height" in sides]
        if not sizes:
            raise UserError(
                f"the image processor {name} states no height and width of its output: set `size` in its "
                'preprocessor_config.json, such as {"height": 224, "width": 224}'
            )
        object.__setattr__(self, "processor", processor)  # a frozen dataclass
        super().__init__((sizes[0]["height"], sizes[0]["width"]), "squash")
        self.check_places()
        example = self.read(torch.zeros(3, 48, 64, dtype=torch.uint8)).pixels
        if example.shape[-2:] != (self.height, self.width):
            raise UserError(
                f"the image processor {name} makes {tuple(example.shape[-2:])} pixels, and states "
                f"{(self.height, self.width)}: its geometry is unknown, so its maps cannot be placed"
            )

    def read(self, photo: Photo) -> FittedPhoto:
        image = open_image(photo)
        return FittedPhoto(self.pixels(image), image.size, self.box(*image.size), photo)

    def pixels(self, image: Image.Image) -> torch.Tensor:
        """The processor's output for a photo."""
        pixels: torch.Tensor = self.processor(images=image, return_tensors="pt")["pixel_values"][0]
        return pixels

    def check_places(self) -> None:
        """Compare `box` with what the processor does to a bright blob at three places of two photos."""
        for width, height in CHECKED_SIZES:
            black = np.zeros((height, width, 3), np.uint8)
            empty = self.pixels(Image.fromarray(black)).mean(0)
            left, top, right, bottom = self.box(width, height)
            first, last = (max(left, 0), max(top, 0)), (min(right, width), min(bottom, height))
            for across, down in PLACES:
                x, y = (
                    slice(*(round(begin + (end - begin) * (place + side)) for side in (-BLOB / 2, BLOB / 2)))
                    for begin, end, place in zip(first, last, (across, down), strict=True)
                )
                photo = black.copy()
                photo[y, x] = 255
                expected = (
                    ((x.start + x.stop) / 2 - left) / (right - left),
                    ((y.start + y.stop) / 2 - top) / (bottom - top),
                )
                seen = self.pixels(Image.fromarray(photo)).mean(0)
                if seen.shape != empty.shape or not _lies_at(expected, (seen - empty).abs()):
                    raise UserError(
                        f"the image processor {type(self.processor).__name__} moves, turns or cuts photos in a way "
                        "that is not known here, so maps would be drawn at wrong places: use a processor that "
                        "only resizes, cuts out the centre and pads at the right and the lower edge"
                    )

    def box(self, width: int, height: int) -> Box:
        columns, rows = self._resized(width, height)
        # In pixels of the resized photo.
        left, top, right, bottom = 0, 0, columns, rows
        if _does(self.processor, "do_center_crop"):
            crop = _sides(self.processor.crop_size)
            left, top = _offset(columns, crop["width"]), _offset(rows, crop["height"])
            right, bottom = left + crop["width"], top + crop["height"]
        if _does(self.processor, "do_pad"):
            right, bottom = left + self.width, top + self.height
        across, down = width / columns, height / rows
        return Box(left * across, top * down, right * across, bottom * down)

    def _resized(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) of the resized photo, rounded as in transformers."""
        if not _does(self.processor, "do_resize"):
            return width, height
        sides = _sides(self.processor.size)
        if "height" in sides:
            return sides["width"], sides["height"]
        short, long = min(width, height), max(width, height)
        longest = sides.get("longest_edge", math.inf)
        shortest = min(sides.get("shortest_edge", math.inf), longest * short / long)
        resized = int(shortest), int(min(longest, shortest * long / short))
        return resized if width <= height else (resized[1], resized[0])

    def to_dict(self) -> dict[str, Any]:
        raise cannot_be_saved()


STEPS = {"crop_size": "do_center_crop", "pad_size": "do_pad", "size": "do_resize"}
"""Attributes of a processor that hold a size, the last step first, and the attributes that enable these steps."""


def _does(processor: Any, step: str) -> bool:
    return bool(getattr(processor, step, None))


def _sides(size: Any) -> dict[str, int]:
    """A processor's size by the names of its sides."""
    if isinstance(size, int):
        return {"height": size, "width": size}
    sides = {} if size is None else dict(size)
    return {name: side for name, side in sides.items() if side is not None}


def _offset(side: int, crop: int) -> int:
    """Where transformers begins to cut out the centre; negative if it pads a smaller photo."""
    return int((side - crop) / 2) if side >= crop else -((crop - side) // 2)


def _lies_at(expected: tuple[float, float], light: torch.Tensor) -> bool:
    """Whether the centre of the light (rows, cols) is at (x, y), in shares of the sides."""
    for place, axis in zip(expected, (0, 1), strict=True):
        along = light.double().sum(axis)
        cells = len(along)
        centre = (torch.arange(cells).double() + 0.5) @ along / along.sum() / cells
        if not (centre - place).abs() <= TOLERANCE:  # also if it is NaN: no light
            return False
    return True
