"""What every reader of files checks: the splits, their images and captions, and that the image files are there."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

from caption.data.readers.captions import SPLIT_NAMES, CaptionedImage, CaptionReader, Splits
from caption.data.readers.findings import (
    BARE,
    EMPTY,
    EMPTY_SPLIT,
    MISSING,
    OVERLAP,
    REPEATED,
    SAME_ID,
    Finding,
    Findings,
    Refusal,
)
from caption.errors import DataError


class CheckedReader(CaptionReader):
    """A reader whose subclasses only say how a file is read. One way of reading serves training, which refuses
    faulty data, and `caption check`, which names all that is wrong with it."""

    @property
    @abstractmethod
    def source(self) -> str:
        """The caption file or files, for messages."""

    @abstractmethod
    def collect(self, findings: Findings) -> Splits:
        """Read the files: whatever is malformed is reported to `findings` and left out.

        Raises:
            DataError: nothing can be read.
        """

    def read(self) -> Splits:
        return self.survey(Refusal(self.source))

    def survey(self, findings: Findings) -> Splits:
        splits = self.collect(findings)
        check(splits, findings, self.source)
        return splits


def check(splits: Splits, findings: Findings, source: str = "") -> None:
    """Report what is wrong with `splits`: an empty one, an image without captions or with a blank one, an image in
    two splits or twice in one, two images with one id, an image file that does not exist.

    Raises:
        DataError: there is no split at all, though nothing was found wrong; one has an unknown name.
    """
    if not splits and not findings.found:
        where = f" in {source}" if source else ""
        raise DataError(f"there is no split to read{where}: give at least one of {', '.join(SPLIT_NAMES)}.")
    check_split_names(splits)
    findings.report([Finding(EMPTY_SPLIT, f"'{split}'") for split, images in splits.items() if not images])
    for split, images in splits.items():
        findings.report([Finding(BARE, named(i, split), (str(i.path),)) for i in images if not i.captions])
        findings.report(
            [Finding(EMPTY, named(i, split), (str(i.path),)) for i in images if not all(i.captions)]
        )
        findings.report(list(_shared_ids(split, images)))
    _check_overlap(splits, findings)
    findings.report(list(_missing(image.path for images in splits.values() for image in images)))


def check_split_names(names: Iterable[str]) -> None:
    """Raise a DataError for a split other than train, val and test."""
    for name in names:
        if name not in SPLIT_NAMES:
            raise DataError(f"'{name}' is no split: the splits are called {', '.join(SPLIT_NAMES)}.")


def named(image: CaptionedImage, split: str) -> str:
    """An image in a message: its id and split."""
    return f"image {image.id!r} ({split})"


def _shared_ids(split: str, images: list[CaptionedImage]) -> Iterator[Finding]:
    first: dict[int | str, CaptionedImage] = {}
    for image in images:
        other = first.setdefault(image.id, image)
        if other is not image and other.path != image.path:  # one file twice is said elsewhere
            paths = (str(other.path), str(image.path))
            yield Finding(SAME_ID, f"{named(image, split)} is both '{paths[0]}' and '{paths[1]}'", paths)


def _check_overlap(splits: Splits, findings: Findings) -> None:
    """An image is its file: ids may well start from 0 in every split."""
    owners: dict[tuple[str, str], list[str]] = {}
    repeated, overlapping = [], []
    for split, images in splits.items():
        for image, file in zip(images, real_files(image.path for image in images), strict=True):
            seen = owners.setdefault(file, [])
            if split in seen:
                text = f"'{image.path}' stands twice in split '{split}'"
                repeated.append(Finding(REPEATED, text, (str(image.path),)))
            elif seen:
                text = f"'{image.path}' is in the splits '{seen[0]}' and '{split}'"
                overlapping.append(Finding(OVERLAP, text, (str(image.path),)))
            seen.append(split)
    findings.report(repeated)
    findings.report(overlapping)


def real_files(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """For each path its folder, links followed, and the file's name: equal for two ways to one file."""
    real: dict[str, str] = {}
    for path in paths:
        folder, name = os.path.split(path)
        if folder not in real:
            real[folder] = os.path.realpath(folder)
        yield real[folder], name


def _missing(paths: Iterable[Path]) -> Iterator[Finding]:
    """Images that do not exist. One listing per folder: a look at each file takes minutes on a network disk."""
    by_folder: dict[str, list[str]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        by_folder.setdefault(folder, []).append(name)
    for folder, names in by_folder.items():
        present, reason = _listing(folder)
        for name in dict.fromkeys(names):
            if name not in present:
                gone = os.path.join(folder, name)
                yield Finding(MISSING, f"'{gone}'{reason}", (gone,))


def _listing(folder: str) -> tuple[set[str], str]:
    """The files in a folder, or why it cannot be read."""
    try:
        with os.scandir(folder or ".") as entries:
            return {entry.name for entry in entries if entry.is_file()}, ""
    except OSError as error:
        return set(), f" (folder '{folder or '.'}': {error.strerror})"
