"""The photos that belong to captions."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from PIL import Image

if TYPE_CHECKING:
    from caption.result import Caption

Photo = Image.Image | str | os.PathLike[str]


def photos_of(captions: Sequence[Caption], images: Sequence[Photo] | None) -> list[Photo]:
    """One photo per caption: the images given, else those that the captions carry.

    Raises:
        ValueError: there are no captions, or not one photo for each.
    """
    if not captions:
        raise ValueError("at least one caption is needed")
    if images is not None:
        if len(images) != len(captions):
            raise ValueError(f"{len(captions)} captions need as many photos, not {len(images)}")
        return list(images)
    photos = [caption.image for caption in captions]
    missing = [index for index, photo in enumerate(photos) if photo is None]
    if missing:
        raise ValueError(f"captions {missing} carry no photo: pass images=")
    return [photo for photo in photos if photo is not None]
