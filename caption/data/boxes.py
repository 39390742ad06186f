"""The boxes of objects in images, from a COCO instances file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from caption.box import Box, BoxLike
from caption.data.files import object_list, read_json
from caption.errors import DataError

Boxes = Mapping[str, Sequence[BoxLike]]
"""The boxes of one image by object name.

A name with no boxes is an object that the data annotates and the image does not show: a caption that names it is
wrong. The data says nothing about a word that is not a key.
"""


def read_boxes(file: str | os.PathLike[str]) -> dict[int | str, Boxes]:
    """The boxes of every image of a COCO instances file, by image id and category name.

    Every image has every category as a key, with no boxes for those it does not show. Crowd regions (`iscrowd`)
    count like single objects.

    Raises:
        DataError: the file is missing, not JSON, or not in COCO's format.
    """
    data = read_json(file)
    images, categories, annotations = (
        object_list(data, key, f"'{file}'") for key in ("images", "categories", "annotations")
    )
    try:
        names = {category["id"]: category["name"] for category in categories}
        by_image: dict[int | str, dict[str, list[Box]]] = {image["id"]: {} for image in images}
        for annotation in annotations:
            left, top, width, height = map(float, annotation["bbox"])
            boxes = by_image[annotation["image_id"]].setdefault(names[annotation["category_id"]], [])
            boxes.append(Box(left, top, left + width, top + height))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"'{file}' is not a COCO instances file ({type(error).__name__}: {error}): each annotation needs the "
            "image_id and category_id of an entry and a bbox [x, y, width, height]."
        ) from error
    absent: dict[str, Sequence[Box]] = dict.fromkeys(names.values(), ())
    return {image_id: {**absent, **boxes} for image_id, boxes in by_image.items()}
