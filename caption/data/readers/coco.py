"""MS COCO: one captions JSON and one image folder per split."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from caption.core.errors import DataError, first_few
from caption.data.findings import Findings
from caption.data.readers.base import ALL, CaptionText, CheckedReader, DetectedFile, Entry, Layout
from caption.data.splits import SPLIT_NAMES, Splits, check_split_names
from caption.data.text_files import field, object_list

SPLIT_WORDS = {"train": ("train",), "val": ("val", "dev(?!ic)"), "test": ("test",)}
"""How the words of a split begin in the names of files, as regular expressions: dev, but not device."""


@dataclass
class Coco(CheckedReader):
    """Captions in the format of MS COCO (`captions_train2014.json`). An image's id is its COCO id.

    Args:
        captions: the captions JSON of each split: keys among train, val, test; or a single file for all splits.
        images: the image folder of each of these splits, or that of the single file.
        fractions: for a single file, the share of each split: `{train: 0.8, val: 0.1, test: 0.1}`, see
            `caption.data.splits`; None = all its images are training images.
    """

    format: ClassVar[str] = "COCO"
    captions: dict[str, str] | str
    images: dict[str, str] | str
    fractions: dict[str, float] | None = None

    @property
    def source(self) -> str:
        files = [self.captions] if isinstance(self.captions, str) else self.captions.values()
        return ", ".join(f"'{file}'" for file in files)

    @classmethod
    def matches(cls, file: CaptionText) -> bool:
        return "annotations" in file.object

    @classmethod
    def entries(cls, file: CaptionText, findings: Findings) -> Iterator[Entry]:
        """One entry without captions for each image, then one for each caption. The images, and their file names, may
        be missing."""
        data, name = file.json, file.name
        files: dict[int | str, str] = {}
        ids: dict[str, int | str] = {}
        has_images = isinstance(data, dict) and data.get("images")
        for number, image in enumerate(object_list(data, "images", name) if has_images else ()):
            where = f"entry {number} of 'images' in {name}"
            with findings:
                image_id = _id(image, "id", where, ids)
                files.setdefault(image_id, "")  # a caption of a faulty entry is not a second fault
                image_file = field(image, "file_name", str, where) if "file_name" in image else ""
                files[image_id] = files[image_id] or image_file.strip()
                yield Entry(where, image_id, image_file.strip(), ())
        for number, annotation in enumerate(object_list(data, "annotations", name)):
            where = f"entry {number} of 'annotations' in {name}"
            if "caption" not in annotation and "bbox" in annotation:
                raise DataError(f"{name} holds boxes, not captions. Give the captions JSON, captions_*.json.")
            with findings:
                image_id = _id(annotation, "image_id", where, ids)
                if files and image_id not in files:
                    raise DataError(f"{where} belongs to image {image_id}, which is not in 'images'.")
                text = field(annotation, "caption", str, where)
                rejected = annotation.get("is_rejected") is True
                yield Entry(where, image_id, files.get(image_id, ""), (text,), rejected=rejected)

    @classmethod
    def arguments(cls, files: Sequence[DetectedFile], layout: Layout) -> dict[str, Any]:
        """One file and folder if there are fractions; otherwise the file and the folder of each split."""
        if layout.fractions and (len(files) > 1 or len(layout.images) > 1):
            names = first_few(f"'{file.path}'" for file in files)
            raise DataError(
                f"--splits by fraction divides one file and one folder, but there are {names}: name one."
            )
        if layout.fractions:
            # That of all images, also if it was given for one split.
            file = files[0]
            folder = next(iter(layout.images.values()), "") or file.image_folder(
                *_folders(file.path, split_in_name(file.path) or "train")
            )
            return super().arguments(files, layout._replace(images={ALL: folder}))
        captions, folders = {}, {}
        for split, file in files_by_split(files, layout.captions).items():
            given = layout.images.get(split) or layout.images.get(ALL)
            captions[split] = str(file.path)
            folders[split] = given or file.image_folder(*_folders(file.path, split))
        if unused := [split for split in layout.images if split != ALL and split not in captions]:
            raise DataError(
                f"--images gives a folder for {unused[0]}, but the captions are those of {' and '.join(captions)}: "
                "name its captions with --splits, or leave it out."
            )
        return {"captions": captions, "images": folders}

    def collect(self, findings: Findings) -> Splits:
        """The images of each split; a single file is one split, or is divided by `fractions`."""
        if isinstance(self.captions, str) and isinstance(self.images, str):
            return super().collect(findings)
        if isinstance(self.captions, str) or isinstance(self.images, str) or self.fractions is not None:
            raise DataError(
                "fractions divide one file of captions: give one file and one folder, without the names of splits."
            )
        check_split_names(self.captions)
        if set(self.captions) != set(self.images):
            raise DataError(
                f"captions are given for the splits {sorted(self.captions)}, but image folders for "
                f"{sorted(self.images)}: give both for each split."
            )
        splits: Splits = {}
        for split, file in self.captions.items():
            with findings:
                splits[split] = Coco(file, self.images[split]).collect(findings).get("train", [])
        return splits

    def training_entries(self, file: CaptionText, findings: Findings) -> Iterator[Entry]:
        """All entries except the captions of images without a file: only the missing file is reported."""
        object_list(file.json, "images", file.name)
        return (entry for entry in self.entries(file, findings) if entry.file or not entry.captions)

    def key(self, entry: Entry) -> int | str:
        return entry.image


def _id(entry: Mapping[str, Any], key: str, where: str, ids: dict[str, int | str]) -> int | str:
    """An id as first written in its file: 7, "7" and 7.0, which pandas makes of it, are the same id."""
    value = entry.get(key)
    value = int(value) if isinstance(value, float) and value.is_integer() else value
    image = field({key: value}, key, (int, str), where)
    return ids.setdefault(str(image), image)


def files_by_split(
    files: Sequence[DetectedFile], from_options: Mapping[str, DetectedFile]
) -> dict[str, DetectedFile]:
    """The captions JSON of each split: the files that --splits names, and the others by the split in their name."""
    by_split = dict(from_options)
    assigned = {file.path for file in by_split.values()}
    for file in files:
        if file.path not in assigned and (not from_options or len(files) == 1):
            split = split_in_name(file.path) or ("train" if len(files) == 1 else None)
            if split is None or split in by_split:
                names = first_few(f"'{file.path}'" for file in (*by_split.values(), *files))
                raise DataError(
                    f"the names of {names} do not tell which split is which: give --splits, as in train={file.path}."
                )
            by_split[split] = file
    return {split: by_split[split] for split in SPLIT_NAMES if split in by_split}


def split_in_name(file: Path) -> str | None:
    """The split in a file's name, at the start of a word or in trainval; None if there is none, or more than one."""
    stem = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", file.stem).lower()
    splits = [
        split
        for split, words in SPLIT_WORDS.items()
        if any(re.search(rf"(?<![a-z])(?:train)?{word}", stem) for word in words)
    ]
    return splits[0] if len(splits) == 1 else None


def _folders(file: Path, split: str) -> list[Path]:
    """Where the images may be in COCO's layout: annotations/captions_train2014.json, train2014/."""
    beside, name = file.parent, file.stem.removeprefix("captions_")
    return [beside / name, beside.parent / name, beside / split, beside.parent / "images"]
