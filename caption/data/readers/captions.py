"""Images with captions: what files hold, what readers return, the faults that data can have, and the check for them.

Each format has one function from the content of a file to its entries, for every command: its `name` is that of the
file, in quotes, for messages; malformed entries go to `findings` and are left out; a file of another format is a
DataError. Training and scoring refuse faulty data at the first fault; `caption check` collects all faults. The
`findings` decide which of the two happens.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from caption.data.boxes import Boxes
from caption.errors import DataError, first_few

SPLIT_NAMES = ("train", "val", "test")
MAX_CHARACTERS = 20_000
"""Of a caption, ten times those of a long paragraph. Tokenizing some texts takes time quadratic in their length."""


class Entry(NamedTuple):
    """One entry of a caption file."""

    where: str
    """Its place, for messages: "line 7 of 'own.csv'"."""
    image: int | str
    """The id of the image; its file name if the file has no ids."""
    file: str
    """The file of the image, relative to the folder of the images; "" if the entry does not name it."""
    captions: Sequence[str]
    """As written: there may be blank ones, or none."""
    split: str | None = None
    """As written; None if the entry has none."""


@dataclass(frozen=True)
class CaptionedImage:
    """One image and its captions."""

    id: int | str
    """The key of its results and features, unique within its split."""
    path: Path
    """The image file; it existed when the captions were read."""
    captions: tuple[str, ...]
    """At least one, with case and punctuation, without spaces at the ends."""

    def within(self, split: str) -> str:
        """The image in a message: its id and split."""
        return f"image {self.id!r} ({split})"


Splits = dict[str, list[CaptionedImage]]
"""Images by split: keys among "train", "val" and "test", no empty list."""


def too_long(caption: str) -> str:
    """The fault of a caption of more than `MAX_CHARACTERS`."""
    return (
        f"a caption of {len(caption):,} characters, more than {MAX_CHARACTERS:,}; is a quote left open, or a line end "
        "missing?"
    )


class Kind(Enum):
    """A kind of fault or oddity in data: its name, its plural, and a remedy for the user. Faults come first."""

    MALFORMED = "malformed entry", "malformed entries", "Correct or delete what is malformed."
    MISSING = "missing image", "missing images", "Get the files, or take the images out of the captions."
    UNDECODABLE = "undecodable image", "undecodable images", "Get the files again, or take the images out."
    EMPTY = "empty caption", "empty captions", "Write the captions, or delete the entries."
    UNCAPTIONED = "image without captions", "images without captions", "Add captions, or take the images out."
    OVERLAP = (
        "image in two splits",
        "images in two splits",
        "Keep it in one: otherwise the scores mean nothing.",
    )
    REPEATED = "image listed twice", "images listed twice", "Keep one entry."
    SAME_ID = "id of two images", "ids of two images", "Give every image of a split its own id."
    LEAKAGE = (
        "duplicate across splits",
        "duplicates across splits",
        "Keep one: otherwise the scores measure memory.",
    )
    EMPTY_SPLIT = "empty split", "empty splits", "Give it images, or leave it out."
    NO_TRAINING = "missing training split", "missing training splits", "Name the training images."
    NO_WORDS = "empty vocabulary", "empty vocabularies", "Lower the minimum count, or add captions."

    LONG = "over-long caption", "over-long captions", "They cost time and memory; data.max_words cuts them."
    DUPLICATE = (
        "duplicate within a split",
        "duplicates within a split",
        "Such a picture has more weight than others.",
    )
    NO_EVALUATION = (
        "missing evaluation split",
        "missing evaluation splits",
        "Without val no epoch can be chosen; without test there is no final score.",
    )
    UNKNOWN = (
        "split with many unknown words",
        "splits with many unknown words",
        "A model cannot say them: lower the minimum count (--min-count), or give more captions.",
    )
    NEW_WORDS = (
        "model that knows few of the words",
        "models that know few of the words",
        "It starts from English captions of everyday scenes: expect little from a few photos, or train without it.",
    )

    def __init__(self, label: str, plural: str, remedy: str) -> None:
        self.label = label
        self.plural = plural
        self.remedy = remedy

    @property
    def is_fault(self) -> bool:
        """Whether training on such data would be wrong; the other kinds are notes."""
        return self not in (Kind.LONG, Kind.DUPLICATE, Kind.NO_EVALUATION, Kind.UNKNOWN, Kind.NEW_WORDS)


@dataclass(frozen=True)
class Finding:
    """One fault or oddity that was found."""

    kind: Kind
    text: str
    """Names the culprit by file, line or id, and says what is wrong with it."""
    images: tuple[str, ...] = ()
    """The paths of the images concerned, if any."""


class Findings:
    """Collects faults, so that a reader can go on after one."""

    def __init__(self) -> None:
        self.collected: list[Finding] = []
        """In the order in which they were found."""

    def report(self, findings: Sequence[Finding]) -> None:
        """Add findings of one kind; there may be none."""
        self.collected.extend(findings)

    def add(self, kind: Kind, text: str, *images: str | Path) -> None:
        """Report a single finding; for the arguments see `Finding`."""
        self.report([Finding(kind, text, tuple(map(str, images)))])

    def stripped(self, entry: Entry, *images: str | Path) -> list[str]:
        """The captions of an entry without spaces at their ends. Blank ones are left out and reported as empty, those
        of more than `MAX_CHARACTERS` are left out and reported as malformed.
        """
        kept = []
        for number, caption in enumerate(map(str.strip, entry.captions), start=1):
            if 0 < len(caption) <= MAX_CHARACTERS:
                kept.append(caption)
                continue
            place = entry.where if len(entry.captions) == 1 else f"caption {number} of {entry.where}"
            if not caption:
                self.add(Kind.EMPTY, f"{place} ({entry.file})", *images)
            else:
                self.add(Kind.MALFORMED, f"{place} ({entry.file}): {too_long(caption)}", *images)
        return kept

    def skipping(self) -> AbstractContextManager[None]:
        """A context that turns a DataError into a finding. Use it around one entry: the others are still read."""
        return _Skipping(self)

    def of(self, kind: Kind) -> list[Finding]:
        """The findings of one kind, in order."""
        return [finding for finding in self.collected if finding.kind == kind]


class _Skipping(AbstractContextManager[None]):
    # A class because a generator is slower: the context is entered for each of half a million captions.
    def __init__(self, findings: Findings) -> None:
        self.findings = findings

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, DataError):
            return False
        self.findings.add(Kind.MALFORMED, str(error))
        return True


class Refusal(Findings):
    """Raises at the first fault, before any training.

    Args:
        source: the caption file or files, for the message.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source

    def report(self, findings: Sequence[Finding]) -> None:
        """Raise a DataError that names the first few culprits. Notes are ignored."""
        faults = [finding for finding in findings if finding.kind.is_fault]
        if faults:
            kind = faults[0].kind
            what = f"1 {kind.label}" if len(faults) == 1 else f"{len(faults)} {kind.plural}"
            where = f" in {self.source}" if self.source else ""
            culprits = first_few(finding.text for finding in faults)
            raise DataError(f"{what}{where}: {culprits}. {kind.remedy} (`caption check` names all faults.)")

    def skipping(self) -> AbstractContextManager[None]:
        return nullcontext()


class CaptionReader(ABC):
    """Reads one kind of caption file. A subclass's arguments are what a configuration file can set."""

    @abstractmethod
    def read(self) -> Splits:
        """Read and check everything before training starts.

        Raises:
            DataError: a file is missing or malformed, images are missing, splits overlap or are empty.
        """

    def survey(self, findings: Findings) -> Splits:
        """Read what can be read and report faults to `findings`, for `caption check`.

        A reader that cannot go on after a fault raises it, as `read` does. A `CheckedReader` goes on.

        Raises:
            DataError: nothing can be read.
        """
        return self.read()

    def boxes(self, split: str) -> Mapping[int | str, Boxes] | None:
        """The object boxes of each image of a split, by image id; None if the data has none."""
        return None


class CheckedReader(CaptionReader):
    """A reader whose subclasses only read the files; the checks are here."""

    file: str

    @property
    def source(self) -> str:
        """The caption file or files, for messages."""
        return f"'{self.file}'"

    @abstractmethod
    def collect(self, findings: Findings) -> Splits:
        """Read the files. Malformed entries are reported to `findings` and left out.

        Raises:
            DataError: nothing can be read.
        """

    def read(self) -> Splits:
        return self.survey(Refusal(self.source))

    def survey(self, findings: Findings) -> Splits:
        splits = self.collect(findings)
        check_splits(splits, findings, self.source)
        return splits


def check_splits(splits: Splits, findings: Findings, source: str = "") -> None:
    """Report empty splits, images without captions or with a blank one, images in two splits or twice in one, two
    images with one id, and image files that do not exist.

    Raises:
        DataError: there is no split at all, although nothing was found wrong; a split has an unknown name.
    """
    if not splits and not findings.collected:
        where = f" in {source}" if source else ""
        raise DataError(f"there is no split to read{where}: give at least one of {', '.join(SPLIT_NAMES)}.")
    check_split_names(splits)
    findings.report(
        [Finding(Kind.EMPTY_SPLIT, f"'{split}'") for split, images in splits.items() if not images]
    )
    for split, images in splits.items():
        for kind, faulty in (
            (Kind.UNCAPTIONED, [image for image in images if not image.captions]),
            (Kind.EMPTY, [image for image in images if not all(image.captions)]),
        ):
            findings.report([Finding(kind, image.within(split), (str(image.path),)) for image in faulty])
        findings.report(list(_shared_ids(split, images)))
    _check_overlap(splits, findings)
    findings.report(list(_missing(image.path for images in splits.values() for image in images)))


def check_split_names(names: Iterable[str]) -> None:
    """Raise a DataError for a split other than train, val and test."""
    for name in names:
        if name not in SPLIT_NAMES:
            raise DataError(f"'{name}' is not a split: the splits are called {', '.join(SPLIT_NAMES)}.")


def _shared_ids(split: str, images: list[CaptionedImage]) -> Iterator[Finding]:
    first: dict[int | str, CaptionedImage] = {}
    for image in images:
        other = first.setdefault(image.id, image)
        if other is not image and other.path != image.path:  # one file listed twice is another finding
            paths = (str(other.path), str(image.path))
            yield Finding(Kind.SAME_ID, f"{image.within(split)} is both '{paths[0]}' and '{paths[1]}'", paths)


def _check_overlap(splits: Splits, findings: Findings) -> None:
    """Images are compared by file, because ids may start from 0 in every split."""
    owners: dict[tuple[str, str], list[str]] = {}
    repeated, overlapping = [], []
    for split, images in splits.items():
        for image, file in zip(images, real_files(image.path for image in images), strict=True):
            seen = owners.setdefault(file, [])
            if split in seen:
                text = f"'{image.path}' stands twice in split '{split}'"
                repeated.append(Finding(Kind.REPEATED, text, (str(image.path),)))
            elif seen:
                text = f"'{image.path}' is in the splits '{seen[0]}' and '{split}'"
                overlapping.append(Finding(Kind.OVERLAP, text, (str(image.path),)))
            seen.append(split)
    findings.report(repeated)
    findings.report(overlapping)


def real_files(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """For each path its folder, with links resolved, and its file name. Two paths to one file give equal pairs."""
    real: dict[str, str] = {}
    for path in paths:
        folder, name = os.path.split(path)
        if folder not in real:
            try:
                real[folder] = os.path.realpath(folder)
            except ValueError:  # a null character in the name
                real[folder] = folder
        yield real[folder], name


def _missing(paths: Iterable[Path]) -> Iterator[Finding]:
    """Images that do not exist. Folders are listed, because one `stat` per file takes minutes on a network disk."""
    by_folder: dict[str, list[str]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        by_folder.setdefault(folder, []).append(name)
    for folder, names in by_folder.items():
        reason = ""
        try:
            with os.scandir(folder or ".") as listing:
                present = {entry.name for entry in listing if _is_file(entry)}
        except (OSError, ValueError) as error:  # ValueError: a null character in the name
            present, reason = set(), f" (folder '{folder or '.'}': {getattr(error, 'strerror', error)})"
        for name in dict.fromkeys(names):
            if name not in present:
                path_text = os.path.join(folder, name)
                yield Finding(Kind.MISSING, f"'{path_text}'{reason}", (path_text,))


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself, or to a name that is too long
        return False
