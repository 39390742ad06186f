"""Shapes, the built-in dataset: generated scenes with captions in COCO's format and the box of every object.

A scene cannot be captioned without looking at it: every object has its own pair of colour and shape, objects of one
scene often share a colour or a shape, and a relation needs both of its objects. Every name denotes one box, so it is
known where a word should look.

    folder/images/{split}_{number}.png     the scenes
    folder/{split}.json                    captions: info, images, annotations
    folder/{split}_objects.json            boxes: info, images, categories, annotations
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock

from caption.data.boxes import Boxes, read_boxes
from caption.data.files import read_json
from caption.data.readers.captions import SPLIT_NAMES, CaptionReader, Splits
from caption.data.readers.coco import Coco
from caption.data.shapes.captions import describe_scene
from caption.data.shapes.render import render
from caption.data.shapes.scene import NAMES, Object, random_scene
from caption.data.shapes.silhouettes import FULL, silhouette
from caption.errors import DataError
from caption.runtime.files import replacing
from caption.runtime.inputs import TEXT, open_input
from caption.runtime.lock import LOCK

# Increase it when the same parameters give other pixels, captions or boxes.
VERSION = 2

CATEGORIES = [{"id": k, "name": name, "supercategory": name.split()[-1]} for k, name in enumerate(NAMES, 1)]
_IDS_PER_SPLIT = 1_000_000
_DESCRIPTION = "Shapes, {split} split: generated scenes for image captioning with visual attention"


class Shapes(CaptionReader):
    """Reads Shapes, and generates it first if it is not there.

    Args:
        folder: where the images and annotations are, or will be written.
        train: number of training scenes.
        val: number of validation scenes.
        test: number of test scenes.
        size: side of a scene in pixels.
        seed: another seed gives other scenes.
    """

    def __init__(
        self,
        folder: str = "data/shapes",
        train: int = 4000,
        val: int = 500,
        test: int = 500,
        size: int = 64,
        seed: int = 0,
    ) -> None:
        self.folder = Path(os.path.expanduser(folder))
        self.counts = {"train": train, "val": val, "test": test}
        self.size = size
        self.seed = seed

    def read(self) -> Splits:
        write_shapes(self.folder, **self.counts, size=self.size, seed=self.seed)
        captions = {split: str(self.folder / f"{split}.json") for split in self.counts}
        return Coco(captions, dict.fromkeys(captions, str(self.folder / "images"))).read()

    def boxes(self, split: str) -> Mapping[int | str, Boxes]:
        return read_boxes(self.folder / f"{split}_objects.json")


def write_shapes(
    folder: str | Path, train: int = 4000, val: int = 500, test: int = 500, size: int = 64, seed: int = 0
) -> bool:
    """Write `train`, `val` and `test` scenes of `size` x `size` pixels under `folder`, if they are not there yet.

    A Shapes dataset with other parameters is replaced; other files are kept. The same parameters give the same files,
    byte for byte. A scene depends only on its split, number, size and seed, so a larger split begins with the smaller
    one. When several processes start together, one of them writes, and the others wait for it.

    Returns:
        whether it was written.

    Raises:
        DataError: a count is negative or over 999,999, the size is under 48 pixels, the seed is negative, or the
            folder cannot be written or holds another dataset's files under the names needed.
    """
    folder, counts = Path(folder), {"train": train, "val": val, "test": test}
    for split, count in counts.items():
        if not 0 <= count < _IDS_PER_SPLIT:
            raise DataError(f"The {split} split cannot have {count} scenes: choose 0 to 999,999.")
    if size < 48:
        raise DataError(f"Shapes cannot be told apart on {size} x {size} pixels: use a size of 48 or more.")
    if seed < 0:
        raise DataError(f"The seed {seed} is negative: use 0 or more.")

    def complete() -> bool:
        return all(_is_complete(folder, split, count, size, seed) for split, count in counts.items())

    if complete():
        return False
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / LOCK):
            if complete():
                return False
            _clear(folder, counts)
            for split, count in counts.items():
                _write_split(folder, split, count, size, seed)
        return True
    except OSError as error:
        raise DataError(
            f"Shapes cannot be written to {folder} ({error.strerror or error}): name another folder."
        ) from error


def _write_split(folder: Path, split: str, count: int, size: int, seed: int) -> None:
    captions, boxes, images = [], [], []
    for number in range(1, count + 1):
        scene = random_scene(seed, split, number, size)
        image_id = SPLIT_NAMES.index(split) * _IDS_PER_SPLIT + number
        file_name = f"{split}_{number:06d}.png"
        # Level 1 takes half the time of the default level, for 15 % more bytes.
        render(scene).save(folder / "images" / file_name, compress_level=1)
        images.append({"id": image_id, "file_name": file_name, "width": size, "height": size})
        for k, text in enumerate(describe_scene(scene)):
            captions.append({"id": image_id * 10 + k, "image_id": image_id, "caption": text})
        for k, thing in enumerate(scene.objects):
            boxes.append({"id": image_id * 10 + k, "image_id": image_id, **_box_record(thing)})
    captions_path, boxes_path = _json_paths(folder, split)
    common = {"info": _info(split, count, size, seed), "images": images}
    _write_json(boxes_path, {**common, "categories": CATEGORIES, "annotations": boxes})
    _write_json(captions_path, {**common, "annotations": captions})


def _box_record(thing: Object) -> dict[str, Any]:
    left, top, right, bottom = thing.box
    area = float(silhouette(thing.shape, thing.size).sum(dtype=int)) / FULL
    return {
        "category_id": NAMES.index(thing.name) + 1,
        "bbox": [float(left), float(top), float(right - left), float(bottom - top)],
        "area": area,
        "iscrowd": 0,
    }


def _info(split: str, count: int, size: int, seed: int) -> dict[str, Any]:
    return {
        "description": _DESCRIPTION.format(split=split),
        "version": str(VERSION),
        "parameters": {"split": split, "count": count, "size": size, "seed": seed},
    }


def _json_paths(folder: Path, split: str) -> tuple[Path, Path]:
    return folder / f"{split}.json", folder / f"{split}_objects.json"


def _write_json(path: Path, content: dict[str, Any]) -> None:
    with replacing(path) as file:
        file.write(json.dumps(content).encode())


def _is_complete(folder: Path, split: str, count: int, size: int, seed: int) -> bool:
    """Whether both JSON files of a split have these parameters and all their images exist."""
    expected = _info(split, count, size, seed)
    for path in _json_paths(folder, split):
        try:
            content = read_json(path)
            info, names = content["info"], {image["file_name"] for image in content["images"]}
        except (DataError, KeyError, TypeError):
            return False
        if info != expected or not names <= set(os.listdir(folder / "images")):
            return False
    return True


def _check_ours(path: Path, split: str) -> None:
    """Raise a DataError for a file that is not empty and does not begin like a file of Shapes."""
    beginning = json.dumps({"info": {"description": _DESCRIPTION.format(split=split)}}).rstrip("}")
    with open_input(path, TEXT) as file:
        start = file.read(len(beginning))
    if start not in (b"", beginning.encode()):
        raise DataError(f"{path} is not a file of Shapes and would be overwritten: name another folder.")


def _clear(folder: Path, counts: dict[str, int]) -> None:
    """Make the folder, and delete the files that an earlier, larger dataset has left; other files are kept.

    The JSON files are deleted first and written last, so that the folder of a killed run is seen to be incomplete.
    """
    (folder / "images").mkdir(parents=True, exist_ok=True)
    existing = [
        (path, split) for split in SPLIT_NAMES for path in _json_paths(folder, split) if path.exists()
    ]
    for path, split in existing:
        _check_ours(path, split)
    for path, _ in existing:
        path.unlink()
    for path in (folder / "images").iterdir():
        match = re.fullmatch(r"(train|val|test)_(\d{6})\.png", path.name)
        if match and int(match[2]) > counts[match[1]]:
            path.unlink()
