"""The objects in photos by the words that captions use for them, from COCO instances files or this package's own files.

The package's own format is a JSON object. It maps the name of a photo to its `size` (width, height) in pixels and its
`objects`, each with a `kind`, the `names` that captions use for it, and a `box` (left, top, right, bottom). For a COCO
file the names are those of `caption.text.english.coco_words`, and the kind is the supercategory.

All boxes and masks are in the pixels of the photo as it is stored, upright, whatever a model resizes or crops it to.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from caption.core.box import Box
from caption.core.errors import DataError, UserError, first_few
from caption.data.box_faults import boxes_fault
from caption.data.boxes import COCO_BOX, Boxes, Instances
from caption.data.photos import upright_size
from caption.data.text_files import field, object_list, read_json, short_repr
from caption.text.english import coco_words

COCO_KEYS = frozenset({"images", "annotations", "categories"})


class BoxedPhoto(NamedTuple):
    """A photo and the boxes of its objects."""

    path: Path
    boxes: Boxes
    """By the words for the objects; a word without boxes names an object that the photo does not show."""
    kinds: Mapping[str, str]
    """The kind of object that a word names, such as "person"."""
    shown: frozenset[str] | None = None
    """The categories of the objects in the photo; None unless a COCO file annotates all its categories there."""


class PhotoBoxes(NamedTuple):
    """The boxes that files have for some photos."""

    boxed: list[BoxedPhoto]
    """The photos that have an entry, in the order of the files."""
    missing: list[str]
    """Names of photos in the files that were not asked for."""
    words: dict[str, tuple[str, ...]]
    """The words for the objects of every category of COCO files."""


def read_photo_boxes(files: Iterable[str | os.PathLike[str]], photos: Iterable[str | Path]) -> PhotoBoxes:
    """The objects that files annotate in some photos. Photos are matched by file name.

    Raises:
        DataError: a file has another format, or an object of one of the photos is invalid.
        UserError: a file has an entry for none of the photos, two photos have the same name, or a photo does not have
            the size that its boxes were drawn on.
    """
    by_name: dict[str, list[Path]] = {}
    for photo in photos:
        by_name.setdefault(PurePath(photo).name, []).append(Path(photo))
    result = PhotoBoxes([], [], {})
    for file in files:
        quoted = f"'{file}'"
        boxed, missing, places = len(result.boxed), [], []
        in_file: set[str] = set()
        for name, size, boxes, kinds, shown in _entries(file, set(by_name), result.words):
            if name not in by_name:
                missing.append(name)
                continue
            if len(by_name[name]) > 1:
                raise UserError(f"two photos are called {name}: {quoted} does not say which one it means")
            if name in in_file:
                raise DataError(
                    f"{quoted} has two photos called {name}, in different folders: give each its own name"
                )
            in_file.add(name)
            photo = by_name[name][0]
            places.append((f"{short_repr(name)} in {quoted}", boxes, _place(photo, size)))
            result.boxed.append(BoxedPhoto(photo, boxes, kinds, shown))
        if fault := boxes_fault(places):
            raise DataError(f"{fault}. {COCO_BOX}")
        if len(result.boxed) == boxed:
            has = f"has boxes of {first_few(missing)}" if missing else "has boxes of no photo"
            raise UserError(f"{quoted} {has}, but no photo has such a name: give the boxes of these photos")
        result.missing.extend(missing)
    return result


Objects = tuple[str, Sequence[float] | None, Boxes, Mapping[str, str], frozenset[str] | None]
"""Name of the photo, (width, height) on which boxes were drawn, boxes, kinds of words, categories that are shown."""


def _entries(
    file: str | os.PathLike[str], names: set[str], words: dict[str, tuple[str, ...]]
) -> Iterator[Objects]:
    data = read_json(file)
    if data.keys() >= COCO_KEYS:
        return _coco_entries(Instances(data, f"'{file}'"), names, words)
    if data and not any(isinstance(entry, dict) and "objects" in entry for entry in data.values()):
        raise DataError(
            f"'{file}' has no boxes: give COCO's instances_*.json, or an object of photos by name, each with its size "
            "and objects"
        )
    return _own_entries(data, f"'{file}'")


def _own_entries(data: Mapping[str, Any], file: str) -> Iterator[Objects]:
    for name, entry in data.items():
        where = f"{short_repr(name)} in {file}"
        boxes: dict[str, list[Sequence[float]]] = {}
        kinds = {}
        size = _numbers(entry, "size", 2, where)
        for thing in object_list(entry, "objects", where):
            kind, box = field(thing, "kind", str, where), _numbers(thing, "box", 4, where)
            for word in map(str, field(thing, "names", list, where)):
                boxes.setdefault(word, []).append(box)
                kinds[word] = kind
        yield name, size, boxes, kinds, None


def _coco_entries(
    instances: Instances, names: set[str], words: dict[str, tuple[str, ...]]
) -> Iterator[Objects]:
    kinds_of = instances.categories
    words_of = {category: coco_words(category) for category in kinds_of}
    words.update(words_of)
    kinds = {word: kind for category, kind in kinds_of.items() for word in words_of[category]}
    for number, image in instances.images.items():
        name = PurePath(field(image, "file_name", str, f"image {number} of {instances.name}")).name
        if name not in names:
            yield name, None, {}, {}, None
            continue
        size = [side for side in (image.get("width"), image.get("height")) if isinstance(side, int)]
        boxes: dict[str, list[Sequence[float]]] = {}
        for category, objects in instances.boxes(number).items():
            for word in words_of[category]:
                boxes.setdefault(word, []).extend(objects)
        yield name, size if len(size) == 2 else None, boxes, kinds, instances.shown(number)


def _place(photo: Path, drawn_on: Sequence[float] | None) -> Box:
    """(0, 0, width, height) of the photo. Raises a UserError if its boxes were drawn on another size."""
    width, height = size = upright_size(photo)
    if drawn_on is not None and list(size) != list(drawn_on):
        remedy = (
            "boxes and size are those of the photo turned upright by its EXIF orientation: turn them, too"
            if list(drawn_on) == [height, width]
            else "give the folder of these photos with --photos"
        )
        raise UserError(
            f"'{photo}' has {'x'.join(map(str, size))} pixels, and its boxes were drawn on "
            f"{'x'.join(map(str, drawn_on))}: {remedy}"
        )
    return Box(0.0, 0.0, float(width), float(height))


def _numbers(entry: Mapping[str, Any], key: str, count: int, where: str) -> list[float]:
    """`entry[key]`, which must be a list of `count` finite numbers."""
    numbers = field(entry, key, list, where)
    if len(numbers) != count or not all(
        type(number) in (int, float) and math.isfinite(number) for number in numbers
    ):
        raise DataError(
            f"{where} has {short_repr(numbers)} as '{key}', not {count} numbers: use another file"
        )
    return numbers
