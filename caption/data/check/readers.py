"""The reader for a file or folder of captions whose format its content tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from caption.data.check.formats import Source, recognised, recognised_in
from caption.data.readers.captions import SPLIT_NAMES, enumerated, located, text_lines
from caption.data.readers.flickr import read_names
from caption.errors import DataError
from caption.parts import Spec

IMAGE_FOLDERS = ("images", "Images", "Flicker8k_Dataset", "flickr30k-images")
ALL = ""
"""The key of a folder that holds the images of all splits."""

_WORDS = {"train": ("train",), "val": ("val", "dev"), "test": ("test",)}


def reader_for(data: str, images: Mapping[str, str], splits: Mapping[str, str]) -> Spec:
    """Class path and arguments of the reader for a file or folder.

    Args:
        data: a caption file, or a folder with one (COCO: with one for each split).
        images: folders of images: by split for COCO; under `ALL` the one of all splits; where none is given, the
            likely place that has the images.
        splits: for COCO the captions JSON of each split, for Flickr the list of each, for CSV and JSON lines the
            fraction of each; not needed where names of files, or the data, tell.

    Raises:
        DataError: it is none of the formats, or several, or what is given does not fit it.
    """
    path = located(data)
    sources = recognised_in(path) if path.is_dir() else [recognised(path)]
    known = {source.format for source in sources}
    if len(known) > 1 or (len(sources) > 1 and known != {"COCO"}):
        names = enumerated([f"{source.file.name} ({source.format})" for source in sources])
        raise DataError(f"'{path}' has several caption files: {names}. Name the one that is meant.")
    if sources[0].format != "COCO" and set(images) - {ALL}:
        raise DataError(f"--images takes one folder for data in {sources[0].format} format.")
    return _READERS[sources[0].format](sources, images, splits)


def _coco(sources: list[Source], images: Mapping[str, str], splits: Mapping[str, str]) -> Spec:
    by_split = {split: recognised(located(file)) for split, file in splits.items()}
    named = {source.file for source in by_split.values()}
    for source in sources:
        if source.file not in named and (not splits or len(sources) == 1):
            split = _split_of(source.file) or ("train" if len(sources) == 1 else None)
            if split is None or split in by_split:
                files = enumerated([f"'{source.file}'" for source in (*by_split.values(), *sources)])
                raise DataError(
                    f"the names of {files} do not tell which split is which: say it with --splits, as in "
                    f"train={source.file}."
                )
            by_split[split] = source
    ordered = {split: by_split[split] for split in SPLIT_NAMES if split in by_split}
    folders = {
        split: images.get(split) or images.get(ALL) or str(_image_folder(source, split))
        for split, source in ordered.items()
    }
    captions = {split: str(source.file) for split, source in ordered.items()}
    return {
        "class_path": "caption.data.readers.Coco",
        "init_args": {"captions": captions, "images": folders},
    }


def _karpathy(sources: list[Source], images: Mapping[str, str], splits: Mapping[str, str]) -> Spec:
    (source,) = sources
    if splits:
        raise DataError(f"'{source.file}' says the splits itself: leave out --splits.")
    folder = images.get(ALL) or str(_image_folder(source))
    return {
        "class_path": "caption.data.readers.Karpathy",
        "init_args": {"file": str(source.file), "images": folder},
    }


def _flickr(sources: list[Source], images: Mapping[str, str], splits: Mapping[str, str]) -> Spec:
    (source,) = sources
    arguments = {
        "captions": str(source.file),
        "splits": dict(splits) or _lists_beside(source.file),
        "images": images.get(ALL) or str(_image_folder(source)),
    }
    return {"class_path": "caption.data.readers.Flickr", "init_args": arguments}


def _csv(sources: list[Source], images: Mapping[str, str], splits: Mapping[str, str]) -> Spec:
    return {
        "class_path": "caption.data.readers.Csv",
        "init_args": _table_arguments(sources[0], images, splits),
    }


def _json_lines(sources: list[Source], images: Mapping[str, str], splits: Mapping[str, str]) -> Spec:
    return {
        "class_path": "caption.data.readers.JsonLines",
        "init_args": _table_arguments(sources[0], images, splits),
    }


def _table_arguments(source: Source, images: Mapping[str, str], splits: Mapping[str, str]) -> dict[str, Any]:
    arguments: dict[str, Any] = {"file": str(source.file)}
    folder = located(images[ALL]) if ALL in images else _image_folder(source)
    if folder != source.file.parent:
        arguments["images"] = str(folder)
    if splits:
        try:
            arguments["fractions"] = {split: float(fraction) for split, fraction in splits.items()}
        except ValueError:
            raise DataError(
                f"--splits takes fractions for data in {source.format} format, such as train=0.8 val=0.1 test=0.1."
            ) from None
    return arguments


_READERS: dict[str, Callable[[list[Source], Mapping[str, str], Mapping[str, str]], Spec]] = {
    "COCO": _coco,
    "Karpathy": _karpathy,
    "Flickr": _flickr,
    "CSV": _csv,
    "JSON lines": _json_lines,
}


def _split_of(file: Path) -> str | None:
    """The split that a file's name tells; None if it tells none, or two."""
    stem = file.stem.lower()
    found = [split for split, words in _WORDS.items() if any(word in stem for word in words)]
    return found[0] if len(found) == 1 else None


def _lists_beside(tokens: Path) -> dict[str, str]:
    """Flickr's lists of images, beside the token file and named after their splits."""
    names = {line.partition("\t")[0].rpartition("#")[0] for _, line in text_lines(tokens)}
    found: dict[str, list[Path]] = {}
    for file in sorted(tokens.parent.glob("*.txt")):
        split = _split_of(file)
        if split is not None:
            with suppress(DataError):
                if names.intersection(read_names(file)):
                    found.setdefault(split, []).append(file)
    if not found or any(len(files) > 1 for files in found.values()):
        raise DataError(
            f"beside '{tokens}' there is not one list of images for each split: name them with --splits, as in "
            "train=trainImages.txt test=testImages.txt."
        )
    return {split: str(found[split][0]) for split in SPLIT_NAMES if split in found}


def _image_folder(source: Source, split: str | None = None) -> Path:
    """The likely folder with most of the example images; the file's own where there are none anywhere."""
    beside = source.file.parent
    places = [beside, *(beside / name for name in IMAGE_FOLDERS)]
    if split is not None:  # as COCO has it: annotations/captions_train2014.json, train2014/
        name = source.file.stem.removeprefix("captions_")
        places += [beside / name, beside.parent / name, beside / split, beside.parent / "images"]
    return max(places, key=lambda place: sum((place / name).is_file() for name in source.examples))
