"""The pixels of models for images and text, which come in many shapes, as rows of numbers."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image
from torch import Tensor

from caption.core.box import Box, part_of
from caption.core.regions import Grid
from caption.data.photos import FittedPhoto, ImageTransform, open_image
from caption.models.transformers.encoder import cannot_be_saved
from caption.models.transformers.layout import Layout, coordinate_photos, layout_of, tiles

if TYPE_CHECKING:
    from caption.data.photos import Photo


class Input(NamedTuple):
    """What the arguments of `get_image_features` have in common for photos that are encoded together."""

    key: tuple[Any, ...]
    """Differs for all others."""
    shape: tuple[int, ...]
    """Of the pixels of one photo."""
    arguments: dict[str, Tensor]
    """The others."""
    layout: Layout


class PackedTransform(ImageTransform):
    """The pixels that a model's processor makes, as one row of numbers.

    Photos whose other arguments or layouts differ get rows of different lengths, by zeros at the end, because photos
    of one shape are encoded together.

    Args:
        arguments: of `get_image_features` for a photo: its pixels, and others by name.
        cells: places of the image tokens (N, 4), from those of the tiles, the shape of the pixels and the arguments;
            see `layout.cells_of`.
    """

    arguments: Callable[[Image.Image], tuple[Tensor, dict[str, Tensor]]]
    cells: Callable[[Tensor, tuple[int, ...], dict[str, Tensor]], Tensor]
    layouts: dict[tuple[int, int], Layout]
    """By width and height."""
    inputs: dict[int, Input]
    """By the length of a row."""
    examples: dict[tuple[Grid, ...], tuple[int, int]]
    """(width, height) of a photo with these grids."""

    def __init__(
        self,
        arguments: Callable[[Image.Image], tuple[Tensor, dict[str, Tensor]]],
        cells: Callable[[Tensor, tuple[int, ...], dict[str, Tensor]], Tensor],
    ) -> None:
        super().__init__(1, "squash")
        tables: dict[str, Any] = {name: {} for name in ("layouts", "inputs", "examples")}
        for name, value in {
            "arguments": arguments,
            "cells": cells,
            **tables,
        }.items():
            object.__setattr__(self, name, value)  # a frozen dataclass

    def read(self, photo: Photo) -> FittedPhoto:
        image = open_image(photo)
        pixels, arguments = self.arguments(image)
        layout = self.layout(*image.size)
        digests = [sha256(value.numpy().tobytes()).digest() for value in arguments.values()]
        made = Input((pixels.shape, layout.grids, *digests), tuple(pixels.shape), arguments, layout)
        length = pixels.numel()
        while self.inputs.setdefault(length, made).key != made.key:
            length += 1
        self.examples.setdefault(layout.grids, image.size)
        packed = pixels.new_zeros(length)
        packed[: pixels.numel()] = pixels.flatten()
        return FittedPhoto(packed, image.size, self.box(*image.size), photo)

    def layout(self, width: int, height: int) -> Layout:
        """The layout of photos of this size."""
        if (width, height) not in self.layouts:
            pixels = []
            for photo in coordinate_photos(width, height):
                made, arguments = self.arguments(photo)
                pixels.append(made)
            placed = tiles(pixels, width, height)
            self.layouts[width, height] = layout_of(self.cells(placed, tuple(made.shape), arguments))
        return self.layouts[width, height]

    def box(self, width: int, height: int) -> Box:
        return part_of((0, 0, width, height), self.layout(width, height).box)

    def to_dict(self) -> dict[str, Any]:
        raise cannot_be_saved()
