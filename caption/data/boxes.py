"""The boxes and masks of objects in images, from a COCO instances file."""

from __future__ import annotations

import contextlib
import io
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from caption.core.box import Box, BoxLike
from caption.core.errors import DataError, kind_and_reason
from caption.data.box_faults import ANYWHERE, boxes_fault
from caption.data.text_files import object_list, read_json, short_repr

if TYPE_CHECKING:
    import numpy as np

Boxes = Mapping[str, Sequence[BoxLike]]
"""The boxes of one image by object name.

A name without boxes is an object that the data annotates and the image does not show: a caption that names it is
wrong. Words that are not keys are not annotated.
"""


COCO_BOX = "In COCO's files a bbox is [x, y, width, height]"
"""The last part of messages about a box in a COCO file."""


class ObjectMask(Box):
    """The box of an object whose pixels are known, too."""

    rle: dict[str, Any]
    """COCO's run-length code; a decoded mask takes a byte for each pixel of the image."""

    @classmethod
    def from_rle(cls, rle: dict[str, Any]) -> ObjectMask:
        """The mask of a run-length code, with the box around it."""
        from pycocotools import mask

        left, top, width, height = map(float, mask.toBbox(rle))
        mask_box = cls(left, top, left + width, top + height)
        mask_box.rle = rle
        return mask_box

    def pixels(self) -> np.ndarray:
        """(height, width) bool: which pixels of the image are the object's."""
        from pycocotools import mask

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of NumPy 2, about its copies
            return mask.decode(self.rle).astype(bool)


class Instances:
    """A COCO instances file, indexed by pycocotools.

    Crowd regions (`iscrowd`) are left out. In an image with one, its whole category is left out, because objects inside
    a crowd cannot be told from single objects. An object with a polygon or a run-length code has its mask.

    A file may have the key "all": the ids of the images in which the objects of all categories are annotated. Without
    it, these are all images.

    Args:
        data: the content of the file.
        name: the file's name, for messages.

    Raises:
        DataError: the content is not in COCO's format.
    """

    def __init__(self, data: dict[str, Any], name: str) -> None:
        self.name = name
        images, categories, annotations = (
            object_list(data, key, self.name) for key in ("images", "categories", "annotations")
        )
        from pycocotools.coco import COCO

        try:
            names = {category["id"]: category["name"] for category in categories}
            image_ids = {image["id"] for image in images}
            for entries, ids in ((categories, names), (images, image_ids)):
                if len(ids) < len(entries):
                    raise ValueError(f"{len(entries)} entries have {len(ids)} ids")
            for annotation in annotations:
                _bounds(annotation)
                names[annotation["category_id"]]
                if annotation["image_id"] not in image_ids:
                    raise KeyError(annotation["image_id"])
            self._complete = frozenset(data.get("all", image_ids))
            self._index = COCO()
            self._index.dataset = data
            with contextlib.redirect_stdout(io.StringIO()):  # it reports each step
                self._index.createIndex()
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"{self.name} is not a COCO instances file ({kind_and_reason(error)}): each image and category "
                "needs an id of its own; each annotation an id, the image_id and category_id of an entry and a bbox "
                '[x, y, width, height]; "all", if present, is a list of image ids.'
            ) from error
        self.images: dict[int | str, dict[str, Any]] = self._index.imgs
        """The entries of the images by their ids."""

    @property
    def categories(self) -> dict[str, str]:
        """The supercategory of every category by the category's name; without a supercategory, the name itself."""
        return {
            str(category["name"]): str(category.get("supercategory") or category["name"])
            for category in self._index.cats.values()
        }

    def boxes(self, image: int | str) -> dict[str, list[Box]]:
        """The objects of an image by category; every category is a key, with no boxes if the image does not show it.

        Raises:
            DataError: a polygon or run-length code is broken.
        """
        boxes: dict[str, list[Box]] = {name: [] for name in self.categories}
        annotations = self._index.imgToAnns.get(image, [])
        for annotation in annotations:
            if not annotation.get("iscrowd"):
                boxes[self._category(annotation)].append(self._object(annotation))
        for annotation in annotations:
            if annotation.get("iscrowd"):
                boxes.pop(self._category(annotation), None)
        return boxes

    def shown(self, image: int | str) -> frozenset[str] | None:
        """The categories of the objects in an image, also of crowds; None if not all categories are annotated in it."""
        annotations = self._index.imgToAnns.get(image, [])
        return frozenset(map(self._category, annotations)) if image in self._complete else None

    def place(self, image: int | str) -> Box:
        """(0, 0, width, height) of an image; `ANYWHERE` if the file does not give its size."""
        width, height = (self.images[image].get(side) for side in ("width", "height"))
        if type(width) is int and type(height) is int:
            return Box(0.0, 0.0, float(width), float(height))
        return ANYWHERE

    def _category(self, annotation: dict[str, Any]) -> str:
        return str(self._index.cats[annotation["category_id"]]["name"])

    def _object(self, annotation: dict[str, Any]) -> Box:
        image, segmentation = self.images[annotation["image_id"]], annotation.get("segmentation")
        height, width = image.get("height"), image.get("width")
        if not segmentation or not isinstance(height, int) or not isinstance(width, int):
            return _bounds(annotation)
        where = f"annotation {short_repr(annotation['id'])} of {self.name}"
        # pycocotools reads beyond the end of a run-length code that is too short.
        find_fault = _polygons_fault if isinstance(segmentation, list) else _rle_fault
        fault = find_fault(segmentation, height, width)
        if fault is None:
            try:
                mask = ObjectMask.from_rle(self._index.annToRLE(annotation))
                # A polygon that is thinner than a pixel has none.
                return mask if mask.right > mask.left else _bounds(annotation)
            except Exception as error:  # the compiled module raises plain exceptions
                fault = kind_and_reason(error)
        raise DataError(f"{where} has a segmentation that is broken: {fault}. Correct it, or delete it.")


def _bounds(annotation: dict[str, Any]) -> Box:
    left, top, width, height = map(float, annotation["bbox"])
    if not all(map(math.isfinite, (left, top, width, height))):
        raise ValueError(f"bbox {annotation['bbox']}")
    return Box(left, top, left + width, top + height)


def read_boxes(file: str | os.PathLike[str]) -> dict[int | str, Boxes]:
    """The boxes of every image of a COCO instances file, by image id and category name, see `Instances`.

    Raises:
        DataError: the file is missing, not JSON, or not in COCO's format, or a box is wrong
            (`caption.data.box_faults`).
    """
    instances = Instances(read_json(file), f"'{file}'")
    boxes: dict[int | str, Boxes] = {image: instances.boxes(image) for image in instances.images}
    places = {image: instances.place(image) for image in boxes}
    if fault := boxes_fault((f"image {image}", boxes[image], places[image]) for image in boxes):
        raise DataError(f"'{file}', {fault}. {COCO_BOX}")
    return boxes


def _polygons_fault(polygons: list[Any], height: int, width: int) -> str | None:
    """Why the polygons are invalid for an image of this size; None if they are valid."""
    for polygon in polygons:
        is_polygon = isinstance(polygon, list) and len(polygon) >= 6 and not len(polygon) % 2
        if not is_polygon or not all(isinstance(x, (int, float)) and math.isfinite(x) for x in polygon):
            return f"{short_repr(polygon)} is not a polygon of numbers x, y, x, y, x, y, ..."
        if not all(-width <= x <= 2 * width for x in polygon[::2]) or not all(
            -height <= y <= 2 * height for y in polygon[1::2]
        ):
            return f"{short_repr(polygon)} is outside of an image of {width}x{height} pixels"
    return None


def _rle_fault(rle: Any, height: int, width: int) -> str | None:
    """Why a run-length code, compressed or not, is invalid for an image of this size; None if it is valid."""
    if not isinstance(rle, dict) or rle.get("size") != [height, width]:
        return f"its size is not that of the image, [{height}, {width}]"
    pixels = height * width
    # pycocotools refuses runs of more pixels than an image has. With fewer, it would leave pixels uninitialized.
    if not _fits(rle.get("counts"), pixels) or (pixels and _fits(rle.get("counts"), pixels - 1)):
        return f"{short_repr(rle.get('counts'))} are not the runs of {pixels} pixels"
    return None


def _fits(counts: Any, pixels: int) -> bool:
    """Whether the runs of a code, a string or a list, cover at most this many pixels."""
    from pycocotools import mask

    try:
        code = {"size": [1, pixels], "counts": counts}
        mask.decode(mask.frPyObjects(code, 1, pixels) if isinstance(counts, list) else code)
    except Exception:  # the compiled module raises plain exceptions
        return False
    return True
