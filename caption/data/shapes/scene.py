"""Scenes of Shapes: coloured shapes at whole-pixel positions, the relations between them, and random scenes."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from caption.data.shapes.silhouettes import SHAPES, silhouette
from caption.data.splits import SPLIT_NAMES

COLOURS = {
    "red": (214, 42, 42),
    "green": (46, 158, 66),
    "blue": (44, 88, 218),
    "yellow": (240, 205, 48),
    "purple": (148, 52, 178),
    "white": (240, 240, 240),
}
JITTER = 14  # a drawn colour differs from its entry in COLOURS by at most this much per channel

NAMES = tuple(f"{colour} {shape}" for shape in SHAPES for colour in COLOURS)

OPPOSITE = {
    "above": "below",
    "below": "above",
    "to the left of": "to the right of",
    "to the right of": "to the left of",
}

# Lengths as parts of the scene's side: at 64 pixels, objects have 14 to 22 pixels and are at least 3 pixels apart.
_SMALLEST, _LARGEST, _MARGIN = 14 / 64, 22 / 64, 3 / 64


class Object(NamedTuple):
    """One coloured shape: the corner of its tight box and its nominal diameter `size`, in pixels.

    `rgb` is the colour drawn, which differs a little from the one in `COLOURS`.
    """

    colour: str
    shape: str
    left: int
    top: int
    size: int
    rgb: tuple[int, int, int]

    @property
    def name(self) -> str:
        """Colour and shape as in captions: "red circle"."""
        return f"{self.colour} {self.shape}"

    @property
    def box(self) -> tuple[int, int, int, int]:
        """(left, top, right, bottom) in pixels, tight around the drawn pixels; right and bottom are exclusive."""
        height, width = silhouette(self.shape, self.size).shape
        return self.left, self.top, self.left + width, self.top + height


class Scene(NamedTuple):
    """Objects of different names on a textured background of `size` x `size` pixels.

    `seed` decides texture and order of captions.
    """

    objects: tuple[Object, ...]
    size: int = 64
    seed: int = 0


def relation(a: Object, b: Object) -> str | None:
    """The position of `a` relative to `b`: a key of `OPPOSITE`, or None if it is not clear.

    It is clear if the offset of the centres along one axis is over 1.3 times the other, and the two boxes do not
    overlap along that axis.
    """
    (left_a, top_a, right_a, bottom_a), (left_b, top_b, right_b, bottom_b) = a.box, b.box
    # Twice the offsets, which are whole numbers and need no rounding.
    dx, dy = left_a + right_a - left_b - right_b, top_a + bottom_a - top_b - bottom_b
    if 10 * abs(dy) > 13 * abs(dx):
        if bottom_a <= top_b:
            return "above"
        return "below" if bottom_b <= top_a else None
    if 10 * abs(dx) > 13 * abs(dy):
        if right_a <= left_b:
            return "to the left of"
        return "to the right of" if right_b <= left_a else None
    return None


def scene_split(scene: Scene) -> str:
    """The split of a scene: a function of the cell of an 8 x 8 grid that each object is in.

    No arrangement is therefore in two splits, whatever their sizes and seeds. Three fifths of all arrangements belong
    to the training split.
    """
    eighth = scene.size / 8
    cells = []
    for thing in scene.objects:
        left, top, right, bottom = thing.box
        cells.append(f"{thing.name} {int((left + right) / 2 / eighth)} {int((top + bottom) / 2 / eighth)}")
    residue = zlib.crc32("; ".join(sorted(cells)).encode()) % 5
    return {0: "val", 1: "test"}.get(residue, "train")


def random_scene(seed: int, split: str, index: int, size: int = 64) -> Scene:
    """Scene number `index` of a split: two or three objects, each pair with a clear relation and order."""
    generator = np.random.default_rng([seed, SPLIT_NAMES.index(split), index])
    numbers = _uniform(generator)
    while True:
        objects = _random_objects(numbers, size)
        if objects is not None:
            scene = Scene(objects, size, int(next(numbers) * 2**31))
            if scene_split(scene) == split:
                return scene


def _uniform(generator: np.random.Generator) -> Iterator[float]:
    """Uniform numbers in [0, 1). NumPy may change its other distributions between releases."""
    while True:
        yield from generator.random(64).tolist()


def _random_objects(numbers: Iterator[float], size: int) -> tuple[Object, ...] | None:
    """Two or three objects, or None if they do not fit."""
    placed: list[Object] = []
    for colour, shape in _random_names(numbers, 2 + int(next(numbers) * 2)):
        thing = _place(colour, shape, placed, numbers, size)
        if thing is None:
            return None
        placed.append(thing)
    return tuple(placed)


def _random_names(numbers: Iterator[float], count: int) -> list[tuple[str, str]]:
    """Different names; with probability 1/2, a later one shares colour or shape with an earlier one."""
    colours = list(COLOURS)
    names: list[tuple[str, str]] = []
    while len(names) < count:
        colour = colours[int(next(numbers) * len(colours))]
        shape = SHAPES[int(next(numbers) * len(SHAPES))]
        if names and next(numbers) < 0.5:
            other_colour, other_shape = names[int(next(numbers) * len(names))]
            if next(numbers) < 0.5:
                colour = other_colour
            else:
                shape = other_shape
        if (colour, shape) not in names:
            names.append((colour, shape))
    return names


def _place(
    colour: str, shape: str, placed: list[Object], numbers: Iterator[float], size: int
) -> Object | None:
    """An object at a distance from those placed and in a clear relation to each, or None after 20 attempts."""
    smallest, largest, margin = (round(part * size) for part in (_SMALLEST, _LARGEST, _MARGIN))
    diameter = smallest + int(next(numbers) * (largest - smallest + 1))
    rgb = tuple(
        min(255, max(0, channel + int((next(numbers) * 2 - 1) * (JITTER + 1)))) for channel in COLOURS[colour]
    )
    height, width = silhouette(shape, diameter).shape
    for _ in range(20):
        left = 1 + int(next(numbers) * (size - width - 1))
        top = 1 + int(next(numbers) * (size - height - 1))
        thing = Object(colour, shape, left, top, diameter, (rgb[0], rgb[1], rgb[2]))
        if all(
            _apart(thing, earlier, margin) and _ordered(thing, earlier, size) and relation(thing, earlier)
            for earlier in placed
        ):
            return thing
    return None


def _ordered(a: Object, b: Object, size: int) -> bool:
    """Whether it is clear which of two is farther left: centres at least a twelfth of the scene apart."""
    return 6 * abs(a.box[0] + a.box[2] - b.box[0] - b.box[2]) >= size


def _apart(a: Object, b: Object, margin: int) -> bool:
    (left_a, top_a, right_a, bottom_a), (left_b, top_b, right_b, bottom_b) = a.box, b.box
    return (
        right_a + margin <= left_b
        or right_b + margin <= left_a
        or bottom_a + margin <= top_b
        or bottom_b + margin <= top_a
    )


def from_left_to_right(scene: Scene) -> list[Object]:
    """The objects by the horizontal position of their centres; of two at the same position, the upper one first."""
    return sorted(scene.objects, key=lambda thing: (thing.box[0] + thing.box[2], thing.box[1] + thing.box[3]))
