"""Shapes, the built-in dataset: generated scenes with captions in COCO's format and the box of every object.

A scene cannot be captioned without looking at it: every object has its own pair of colour and shape, objects of one
scene often share a colour or a shape, and a relation needs both of its objects. Every name denotes one box, so the
region that a word should look at is known.

    folder/images/{split}_{number}.png     the scenes
    folder/{split}.json                    captions: info, images, annotations
    folder/{split}_objects.json            boxes: info, images, categories, annotations
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from caption.core.errors import DataError, UserError
from caption.core.runtime.atomic_files import OwnFolder, locked
from caption.data.boxes import Boxes, read_boxes
from caption.data.findings import Findings
from caption.data.readers.base import CaptionReader
from caption.data.readers.coco import Coco
from caption.data.shapes.captions import describe_scene
from caption.data.shapes.render import render
from caption.data.shapes.scene import NAMES, Object, random_scene
from caption.data.shapes.silhouettes import FULL, silhouette
from caption.data.splits import SPLIT_NAMES, Splits
from caption.data.text_files import read_json

# Increase it when the same parameters give other pixels, captions or boxes.
VERSION = 2

CATEGORIES = [{"id": k, "name": name, "supercategory": name.split()[-1]} for k, name in enumerate(NAMES, 1)]
_IDS_PER_SPLIT = 1_000_000
FOLDER = "--data.reader.init_args.folder"
"""The option that names the folder."""
_DESCRIPTION = "Shapes, {split} split: generated scenes for image captioning with visual attention"


class Shapes(CaptionReader):
    """Reads Shapes, and generates it first if it is not there.

    Args:
        folder: of the images and annotations; created if it does not exist.
        train: number of training scenes; 0 = there is no such split.
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
        self._boxes: dict[str, Mapping[int | str, Boxes]] = {}

    def read(self) -> Splits:
        write_shapes(self.folder, **self.counts, size=self.size, seed=self.seed)
        return self._read()

    def survey(self, findings: Findings) -> Splits:
        if not is_complete(self.folder, **self.counts, size=self.size, seed=self.seed):
            raise UserError(f"'{self.folder}' does not hold these scenes yet: caption fit writes them")
        return self._read()

    def _read(self) -> Splits:
        captions = {
            split: str(self.folder / f"{split}.json") for split, count in self.counts.items() if count
        }
        splits = Coco(captions, dict.fromkeys(captions, str(self.folder / "images"))).read()
        self._boxes = {split: self._read_boxes(split) for split in self.counts}
        return splits

    def boxes(self, split: str) -> Mapping[int | str, Boxes]:
        """Those of the scenes that were read, even if another process has written others since."""
        return self._boxes[split] if self._boxes else self._read_boxes(split)

    def _read_boxes(self, split: str) -> Mapping[int | str, Boxes]:
        return read_boxes(self.folder / f"{split}_objects.json")


def write_shapes(
    folder: str | Path, train: int = 4000, val: int = 500, test: int = 500, size: int = 64, seed: int = 0
) -> bool:
    """Write `train`, `val` and `test` scenes of `size` x `size` pixels under `folder`, if they are not there yet.

    A Shapes dataset with other counts is replaced, but its further scenes stay as files, because a training may be
    reading them; so do other files. The same parameters give the same files, byte for byte. A scene depends only on its
    split, number, size and seed, so a larger split begins with the smaller one. When several processes start together,
    one of them writes, and the others wait for it.

    Returns:
        whether it was written.

    Raises:
        DataError: a count is negative or over 999,999, the size is under 48 pixels, or the seed is negative.
        UserError: the folder cannot be written, or has scenes of another size or seed, or files under the names needed
            that this package did not write.
    """
    folder, counts = Path(folder), {"train": train, "val": val, "test": test}
    if is_complete(folder, train, val, test, size, seed):
        return False
    with locked(folder, FOLDER, wait=True):
        if is_complete(folder, train, val, test, size, seed):
            return False
        output = OwnFolder(folder, FOLDER)
        jsons = [name for split in SPLIT_NAMES for name in _json_names(split)]
        pictures = [_picture(split, number) for split in counts for number in range(1, counts[split] + 1)]
        output.check([*jsons, *pictures])
        # JSON files are deleted first and written last, so that the folder of a killed run counts as incomplete.
        output.delete(jsons)
        output.claim([*jsons, *pictures])
        for split, count in counts.items():
            _write_split(output, split, count, size, seed)
    return True


def is_complete(folder: Path, train: int, val: int, test: int, size: int, seed: int) -> bool:
    """Whether the folder holds exactly these scenes. For arguments and errors see `write_shapes`."""
    counts = {"train": train, "val": val, "test": test}
    for split, count in counts.items():
        if not 0 <= count < _IDS_PER_SPLIT:
            raise DataError(f"The {split} split cannot have {count} scenes: choose 0 to 999,999.")
    if size < 48:
        raise DataError(f"Shapes cannot be told apart on {size} x {size} pixels: use a size of 48 or more.")
    if seed < 0:
        raise DataError(f"The seed {seed} is negative: use 0 or more.")
    return all(_is_complete(folder, split, count, size, seed) for split, count in counts.items())


def _write_split(output: OwnFolder, split: str, count: int, size: int, seed: int) -> None:
    captions, boxes, images = [], [], []
    for number in range(1, count + 1):
        scene = random_scene(seed, split, number, size)
        image_id = SPLIT_NAMES.index(split) * _IDS_PER_SPLIT + number
        name = _picture(split, number)
        with output.write(name, durable=False) as file:
            # Level 1 takes half the time of the default level, for 15 % more bytes.
            render(scene).save(file, "PNG", compress_level=1)
        images.append({"id": image_id, "file_name": Path(name).name, "width": size, "height": size})
        for k, text in enumerate(describe_scene(scene)):
            captions.append({"id": image_id * 10 + k, "image_id": image_id, "caption": text})
        for k, thing in enumerate(scene.objects):
            boxes.append({"id": image_id * 10 + k, "image_id": image_id, **_box_record(thing)})
    captions_name, boxes_name = _json_names(split)
    common = {"info": _info(split, count, size, seed), "images": images}
    output.write_json(boxes_name, {**common, "categories": CATEGORIES, "annotations": boxes})
    output.write_json(captions_name, {**common, "annotations": captions})


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


def _picture(split: str, number: int) -> str:
    return f"images/{split}_{number:06d}.png"


def _json_names(split: str) -> tuple[str, str]:
    return f"{split}.json", f"{split}_objects.json"


def _is_complete(folder: Path, split: str, count: int, size: int, seed: int) -> bool:
    """Whether both JSON files of a split have these parameters and all their images exist. Raises a UserError if they
    have another size or seed: the names of the images would be the same."""
    expected = _info(split, count, size, seed)
    for name in _json_names(split):
        try:
            content = read_json(folder / name)
            info, names = content["info"], {image["file_name"] for image in content["images"]}
            count_held, *held = (info["parameters"][key] for key in ("count", "size", "seed"))
            present = set(os.listdir(folder / "images") if names else [])
        except (DataError, OSError, KeyError, TypeError):
            return False
        if held != [size, seed] and info == _info(split, count_held, *held):
            raise UserError(
                f"'{folder}' has scenes of {held[0]} pixels and seed {held[1]}, which a training may be reading: name "
                f"another folder with {FOLDER}, or delete this one"
            )
        if info != expected or not names <= present:
            return False
    return True
