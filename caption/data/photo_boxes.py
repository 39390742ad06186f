"""The objects in photos by the words that captions use for them: from COCO instances files, or this package's own.

This package's own file is a JSON object: by the name of a photo, its `size` (width, height) in pixels, and `objects`,
each with a `kind`, the `names` that captions call it, and a `box` (left, top, right, bottom). In a COCO file the names
are those of `caption.text.english.coco_words`, and the kind is the supercategory.

All boxes and masks are in the pixels of the photo as it is stored, upright, whatever a model resizes or crops it to.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from caption.core.errors import DataError, UserError, first_few
from caption.data.boxes import Boxes, Instances
from caption.data.photos import open_image
from caption.data.text_files import field, object_list, read_json, short_repr
from caption.text.english import coco_words

COCO_KEYS = frozenset({"images", "annotations", "categories"})


class BoxedPhoto(NamedTuple):
    """A photo and the boxes of its objects."""

    path: Path
    boxes: Boxes
    """By the words for what is in them; a word without boxes is for what the photo does not show."""
    kinds: Mapping[str, str]
    """What kind of thing a word names, such as "person"."""
    shown: frozenset[str] | None = None
    """The categories of the objects in the photo; None unless a COCO file annotates all of its own in it."""


class PhotoBoxes(NamedTuple):
    """What files say about some photos."""

    boxed: list[BoxedPhoto]
    """The photos that have an entry, in the order of the files."""
    missing: list[str]
    """The photos of the files that are not among those asked for."""
    words: dict[str, tuple[str, ...]]
    """The words for the objects of every category of COCO files."""


def read_photo_boxes(files: Iterable[str | os.PathLike[str]], photos: Iterable[str | Path]) -> PhotoBoxes:
    """The objects that files tell of in some photos. Photos are found by the names of their files.

    Raises:
        DataError: a file has another form, or an object of one of the photos is broken.
        UserError: a file has entries of none of the photos, two photos have one name, or a photo has another size than
            the one that its boxes were drawn on.
    """
    by_name: dict[str, list[Path]] = {}
    for photo in photos:
        by_name.setdefault(PurePath(photo).name, []).append(Path(photo))
    result = PhotoBoxes([], [], {})
    for file in files:
        named = f"'{file}'"
        boxed, missing = len(result.boxed), []
        for name, size, boxes, kinds, shown in _entries(file, set(by_name), result.words):
            if name not in by_name:
                missing.append(name)
                continue
            if len(by_name[name]) > 1:
                raise UserError(f"two photos are called {name}: {named} does not say which one it means")
            result.boxed.append(BoxedPhoto(_of_size(by_name[name][0], size), boxes, kinds, shown))
        if len(result.boxed) == boxed:
            has = f"has boxes of {first_few(missing)}" if missing else "has boxes of no photo"
            raise UserError(
                f"{named} {has}, and none of the photos is called so: give the boxes of these photos"
            )
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
        width, height = size = _numbers(entry, "size", 2, where)
        for thing in object_list(entry, "objects", where):
            kind, box = field(thing, "kind", str, where), _numbers(thing, "box", 4, where)
            if not (box[0] < box[2] and box[1] < box[3]):
                raise DataError(f"{where} has the box {short_repr(box)}: write left, top, right, bottom")
            if not (box[0] < width and box[1] < height and box[2] > 0 and box[3] > 0):
                raise DataError(
                    f"{where} has the box {short_repr(box)}, outside of its size {short_repr(size)}: correct it"
                )
            for word in map(str, field(thing, "names", list, where)):
                boxes.setdefault(word, []).append(box)
                kinds[word] = kind
        yield name, size, boxes, kinds, None


def _coco_entries(
    instances: Instances, names: set[str], words: dict[str, tuple[str, ...]]
) -> Iterator[Objects]:
    kinds_of = instances.categories
    called = {category: coco_words(category) for category in kinds_of}
    words.update(called)
    kinds = {word: kinds_of[category] for category, several in called.items() for word in several}
    for number, image in instances.images.items():
        name = PurePath(field(image, "file_name", str, f"image {number} of {instances.name}")).name
        if name not in names:
            yield name, None, {}, {}, None
            continue
        size = [side for side in (image.get("width"), image.get("height")) if isinstance(side, int)]
        boxes: dict[str, list[Sequence[float]]] = {}
        for category, objects in instances.boxes(number).items():
            for word in called[category]:
                boxes.setdefault(word, []).extend(objects)
        yield name, size if len(size) == 2 else None, boxes, kinds, instances.shown(number)


def _of_size(photo: Path, drawn_on: Sequence[float] | None) -> Path:
    """The photo, whose size must be this one."""
    size = open_image(photo).size
    if drawn_on is not None and list(size) != list(drawn_on):
        raise UserError(
            f"'{photo}' has {'x'.join(map(str, size))} pixels, and its boxes were drawn on "
            f"{'x'.join(map(str, drawn_on))}: give the folder of these photos with --photos"
        )
    return photo


def _numbers(entry: Mapping[str, Any], key: str, count: int, where: str) -> list[float]:
    """`entry[key]`, which must be so many numbers."""
    numbers = field(entry, key, list, where)
    if len(numbers) != count or not all(type(one) in (int, float) and math.isfinite(one) for one in numbers):
        raise DataError(
            f"{where} has {short_repr(numbers)} as '{key}', not {count} numbers: use another file"
        )
    return numbers
