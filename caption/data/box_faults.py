"""What is wrong with boxes that people or files give: the one rule for all boxes of objects in photos.

A wrong convention, such as (x, y, width, height) or fractions, still consists of four numbers and would give a wrong
result without a word.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from caption.core.box import Box, BoxLike
from caption.data.text_files import short_repr

ANYWHERE = Box(-math.inf, -math.inf, math.inf, math.inf)
"""The place of a photo of unknown size."""
ROUNDING = 1.0
"""Pixels by which a box may end beyond its photo: annotators round, and some count pixels from 1."""
NORMALISED = 1024
"""Detectors and vision-language models write coordinates from 0 to 1000, 1023 or 1024."""


def box_fault(box: BoxLike, photo: BoxLike = ANYWHERE) -> str | None:
    """Why something is not the box (left, top, right, bottom) of an object, in pixels; None if it may be one.

    Args:
        box: any value.
        photo: where the photo lies, in the same pixels: (0, 0, width, height).
    """
    try:
        left, top, right, bottom = sides = tuple(map(float, box))
    except (TypeError, ValueError):
        return f"{short_repr(box)} is not a box: write four numbers, left, top, right, bottom"
    name = f"the box {short_repr(list(box))}"
    if not all(map(math.isfinite, sides)):
        return f"{name} has a side that is not a finite number: write left, top, right, bottom"
    if not (left < right and top < bottom):
        return f"{name} has no area, or is x, y, width, height: write left, top, right, bottom"
    if max(map(abs, sides)) <= 1 < max(photo[2:]):
        return f"{name} looks like fractions of the photo's width and height: multiply them by its pixels"
    if not (left < photo[2] and top < photo[3] and right > photo[0] and bottom > photo[1]):
        return f"{name} lies outside of the photo, {_described(photo)}: correct it"
    return None


def boxes_fault(photos: Iterable[tuple[str, Mapping[str, Sequence[BoxLike]], BoxLike]]) -> str | None:
    """Why boxes of objects in photos cannot be used: one of them is not a box, see `box_fault`, or most of them reach
    beyond their photo; None if they may be right.

    Args:
        photos: of each its name for the message, the boxes, and where it lies, see `box_fault`.
    """
    count = 0
    beyond: list[tuple[str, BoxLike, BoxLike]] = []
    for name, objects, photo in photos:
        # A box may have several names.
        boxes = {id(box): box for box in chain.from_iterable(objects.values())}
        for box in boxes.values():
            if fault := box_fault(box, photo):
                return f"{name}: {fault}"
            if _reaches_beyond(box, photo):
                beyond.append((name, box, photo))
        count += len(boxes)
    if 2 * len(beyond) <= count:
        return None
    name, box, photo = beyond[0]
    return f"{name}: the box {short_repr(list(box))} {_beyond_fault([box for _, box, _ in beyond], photo)}"


def _reaches_beyond(box: BoxLike, photo: BoxLike) -> bool:
    return any(
        photo[side] - box[side] > ROUNDING or box[side + 2] - photo[side + 2] > ROUNDING for side in (0, 1)
    )


def _beyond_fault(boxes: Sequence[BoxLike], photo: BoxLike) -> str:
    """What boxes look like that reach beyond their photos; the first one's photo is given."""
    sides = [side for box in boxes for side in box]
    like = "for a photo of another size, or has width and height added twice"
    if min(sides) >= 0 and max(sides) <= NORMALISED:
        like = f"in coordinates from 0 to {1000 if max(sides) <= 1000 else NORMALISED}"
    return (
        f"reaches beyond the photo, {_described(photo)}. It may be {like}: write left, top, right, bottom in pixels of "
        "the upright photo"
    )


def _described(photo: BoxLike) -> str:
    left, top, right, bottom = photo
    return f"({left:g}, {top:g}, {right:g}, {bottom:g})" if left or top else f"{right:g} x {bottom:g} pixels"
