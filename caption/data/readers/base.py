"""The base of all readers of caption files: entries, the images built from them, and checks of splits.

`matches` tests whether a file has the reader's format. `entries` reads the file's entries, for every command: malformed
ones are added to `findings` and left out; a file of another format is a DataError. Training and scoring then refuse
faulty data; `caption check` lists all faults.
"""

from __future__ import annotations

import ast
import os
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from pathlib import Path, PurePath
from typing import Any, ClassVar, NamedTuple
from urllib.parse import unquote

from caption.core.errors import DataError
from caption.data.boxes import Boxes
from caption.data.findings import Finding, Findings, Kind
from caption.data.splits import (
    SPLIT_NAMES,
    CaptionedImage,
    Splits,
    check_fractions,
    check_split_names,
    split_by_fraction,
)
from caption.data.text_files import json_or_none, numbered_lines, parsed, read_text, short_repr, user_path

MAX_CHARACTERS = 20_000
"""The longest caption: ten times a long paragraph. Tokenizing some texts takes time quadratic in their length."""
LINE_END = re.compile(r"[\r\n]")
LIST = re.compile(r"""\s*([\[({])\s*['"].*['"]\s*(?:,\s*)?[\])}]\s*""", re.DOTALL)
"""A text that may be a list, tuple or set of texts in Python or JSON."""
MARKUP = re.compile(r"</?(?i:br|p|b|i|u|em|strong|span|div|a|img)\b[^<>]*>|\\[nrt]")
"""HTML, and line ends and tabs that were written as two characters."""
_BYTE = "\x80-\xbf€‚ƒ„†‡ˆ‰Š‹ŒŽ•˜™š›œžŸ"  # the second byte of a letter in UTF-8
_ANY_BYTE = f"[{_BYTE}…‘’“”–—]"  # after a single capital, these are punctuation
MOJIBAKE = re.compile(f"[Â-Å][{_BYTE}]|â[\x80€]{_ANY_BYTE}|(?:[Ì-ï]{_ANY_BYTE}{{1,2}}){{2}}")
"""UTF-8 that was read as Latin-1 or Windows-1252: letters of Europe, quotation marks, or 2 letters of other scripts."""
MARKS = re.compile(
    r"<(?i:/?s|start|end|pad|bos|eos|sos|\|endoftext\|)>|\[(?:CLS|SEP|PAD)\]|\[/EN#|(?:start|end)seq\b"
)
"""Marks that other programs write around captions, or into them (Flickr30k Entities)."""
EXAMINED = 20
"""Number of lines or images of a file from which its format and the folder of its images are detected."""
IMAGE_FOLDERS = ("images", "Images", "Flicker8k_Dataset", "flickr30k-images")
ALL = ""
"""The key of a folder that holds the images of all splits."""


class Entry(NamedTuple):
    """One entry of a caption file."""

    where: str
    """Its place, for messages: "line 7 of 'own.csv'"."""
    image: int | str
    """The id of the image; its file name if the file has no ids."""
    file: str
    """The file of the image, relative to the folder of the images; "" if the entry does not name it."""
    captions: Sequence[str]
    """As written; captions may be blank, and the list may be empty."""
    split: str | None = None
    """As written; None if the entry has none."""
    rejected: bool = False
    """Whether the file marks its captions as unusable, as VizWiz does."""


class CaptionText:
    """The content of a caption file.

    Args:
        text: the whole file.
        name: the file's name in quotes, for messages.
    """

    def __init__(self, text: str, name: str) -> None:
        self.text = text
        self.name = name

    @cached_property
    def head(self) -> list[str]:
        """The first `EXAMINED` lines that are not blank."""
        return [line for _, line in islice(numbered_lines(self.text), EXAMINED)]

    @cached_property
    def content(self) -> Any:
        """The content as JSON; None for other text, such as JSON lines."""
        return json_or_none(self.text)

    @property
    def json(self) -> Any:
        """The content as JSON. Raises a DataError for other text, with the line."""
        return parsed(self.text, self.name) if self.content is None else self.content

    @property
    def object(self) -> dict[str, Any]:
        """The content if it is a JSON object; {} for everything else."""
        return self.content if isinstance(self.content, dict) else {}


class Layout(NamedTuple):
    """A user's options for the folders and splits of caption files, see `caption.data.readers.detect.reader_for`."""

    images: Mapping[str, str]
    """Folders of images by split; under `ALL` the folder for all splits."""
    splits: Mapping[str, str]
    """See `reader_for`."""
    fractions: Mapping[str, float]
    """The share of each split, for data without splits; {} if `splits` names files or is empty."""
    captions: Mapping[str, DetectedFile]
    """The files of `splits`, for COCO."""


class DetectedFile(NamedTuple):
    """A caption file of some format."""

    path: Path
    reader: type[CheckedReader]
    examples: list[str]
    """Names of some of its images."""

    def image_folder(self, *candidates: Path) -> str:
        """The likely folder with the most example images; the file's own folder if none has any.

        Args:
            candidates: more folders to try.
        """
        beside = self.path.parent
        folders = [beside, *(beside / name for name in IMAGE_FOLDERS), *candidates]
        return str(
            max(folders, key=lambda folder: sum(os.path.isfile(folder / name) for name in self.examples))
        )


class CaptionReader(ABC):
    """Reads one kind of caption file. A subclass's arguments are what a configuration file can set."""

    @abstractmethod
    def read(self) -> Splits:
        """Read and check everything before training starts.

        Raises:
            DataError: a file is missing or malformed, images are missing, splits overlap or are empty.
        """

    def survey(self, findings: Findings) -> Splits:
        """Read what can be read and add faults to `findings`, for `caption check`.

        A reader that cannot go on after a fault raises it, as `read` does. A `CheckedReader` goes on.

        Raises:
            DataError: nothing can be read.
        """
        return self.read()

    def boxes(self, split: str) -> Mapping[int | str, Boxes] | None:
        """The object boxes of each image of a split, by image id; None if the data has none."""
        return None


class CheckedReader(CaptionReader):
    """A reader of a caption file; a subclass reads the file's entries.

    A subclass has the arguments `captions`, the file, and `images`, the folder that image names are relative to; None =
    the file's own.
    """

    format: ClassVar[str]
    """Its name, for messages."""
    captions: Any
    images: Any
    fractions: dict[str, float] | None = None
    """The share of each split, for a file without splits; None = all images are training images."""

    @property
    def source(self) -> str:
        """The caption file or files, for messages."""
        return f"'{self.captions}'"

    @classmethod
    @abstractmethod
    def matches(cls, file: CaptionText) -> bool:
        """Whether a file is of this format, by its content. Damage to single lines or entries does not matter."""

    @classmethod
    @abstractmethod
    def entries(cls, file: CaptionText, findings: Findings) -> Iterator[Entry]:
        """The entries of a file of this format.

        Raises:
            DataError: it has another format.
        """

    @classmethod
    def arguments(cls, files: Sequence[DetectedFile], layout: Layout) -> dict[str, Any]:
        """The arguments that read `files`. Raises a DataError if the layout does not fit the format."""
        (file,) = files
        arguments = {"captions": str(file.path), "images": layout.images.get(ALL) or file.image_folder()}
        return arguments | ({"fractions": dict(layout.fractions)} if layout.fractions else {})

    def training_entries(self, file: CaptionText, findings: Findings) -> Iterator[Entry]:
        """The entries of a file, read with this reader's arguments; the splits have the names that training uses."""
        return self.entries(file, findings)

    def key(self, entry: Entry) -> int | str:
        """The key that all entries of an image share."""
        return str(PurePath(entry.file))

    def collect(self, findings: Findings) -> Splits:
        """The images by the split of their entries; entries without splits are divided by `fractions`.

        Malformed entries are added to `findings` and left out.

        Raises:
            DataError: nothing can be read.
        """
        if self.fractions:
            check_fractions(self.fractions)
        path = user_path(self.captions)
        folder = path.parent if self.images is None else user_path(self.images)
        entries = list(self.training_entries(CaptionText(read_text(path), self.source), findings))
        has_splits = any(entry.split is not None for entry in entries)
        if has_splits and self.fractions:
            raise DataError(f"{self.source} already has splits: leave out the fractions, or its splits.")
        if has_splits:
            entries = list(_with_split(entries, findings))
        images = gather(entries, folder, findings, self.key)
        if not has_splits:
            pairs = [(entry.file, image) for entry, image in images]
            return split_by_fraction(pairs, self.fractions) if pairs or self.fractions else {}
        splits = {split: [image for entry, image in images if entry.split == split] for split in SPLIT_NAMES}
        return {split: members for split, members in splits.items() if members}

    def read(self) -> Splits:
        findings = Findings()
        splits = self.survey(findings)
        findings.refuse(self.source)
        return splits

    def survey(self, findings: Findings) -> Splits:
        splits = self.collect(findings)
        check_splits(splits, findings, self.source)
        return splits


def _with_split(entries: Iterable[Entry], findings: Findings) -> Iterator[Entry]:
    """The entries with a valid split; the others are reported."""
    names = ", ".join(SPLIT_NAMES)
    for entry in entries:
        if entry.split in SPLIT_NAMES:
            yield entry
            continue
        fault = f"has the split '{entry.split}', which is none of {names}. Correct it."
        if entry.split is None:
            fault = f"has no split, though other entries have one. Give it one of {names}."
        findings.add(Kind.MALFORMED, f"{entry.where} {fault}")


def gather(
    entries: Iterable[Entry], folder: Path, findings: Findings, key: Callable[[Entry], int | str]
) -> list[tuple[Entry, CaptionedImage]]:
    """The images of entries in a folder, each with its first entry and the captions of all its entries.

    Entries with the same `key` belong to one image. An entry that names no file, or a different file or split than the
    image's first entry, is reported and left out.
    """
    firsts: dict[int | str, Entry] = {}
    paths: dict[int | str, Path] = {}
    captions: dict[int | str, list[str]] = {}
    overlaps = set()
    for entry in entries:
        if not entry.file:
            text = f"{entry.where} names no file of an image. Write its name as 'file_name'."
            findings.add(Kind.MALFORMED, text)
            continue
        name = key(entry)
        if name not in firsts:
            firsts[name] = entry
            with findings:
                paths[name] = image_path(folder, entry.file, entry.where)
        first = firsts[name]
        if name not in paths:  # reported
            continue
        if entry.file != first.file and folder / entry.file != paths[name]:
            path = folder / entry.file
            text = f"image {entry.image} is both '{paths[name]}' and, by {entry.where}, '{path}'"
            findings.add(Kind.SAME_ID, text, paths[name], path)
        elif entry.split != first.split:
            if (name, entry.split) not in overlaps:
                text = f"{entry.where} ({entry.file}) is in '{entry.split}', but {first.where} in '{first.split}'"
                findings.add(Kind.OVERLAP, text, paths[name])
            overlaps.add((name, entry.split))
        else:
            captions.setdefault(name, []).extend(stripped(entry, findings, paths[name]))
    return [
        (firsts[name], CaptionedImage(firsts[name].image, paths[name], tuple(texts)))
        for name, texts in captions.items()
    ]


def image_path(folder: Path, name: str, where: str) -> Path:
    """The path of an image that a caption file names, within the folder of the images. Links there may lead elsewhere.

    Raises:
        DataError: the name leads out of the folder. Without this check, a stranger's caption file could make a command
            read and copy any file.
    """
    path, given = folder / name, PurePath(name)
    if ".." in given.parts or (given.anchor and not path.is_relative_to(os.path.abspath(folder))):
        raise DataError(
            f"{where} names the file '{name}', which is not in the folder of the images, '{folder}'. Write names "
            "within it, or name the folder that holds all of them (--images, or 'images' of the reader)."
        )
    return path


def stripped(entry: Entry, findings: Findings, path: Path) -> list[str]:
    """The captions of an entry without spaces at their ends. Blank ones are reported as empty and left out. Those with
    a `caption_fault` are reported as malformed, and left out if they are too long. `oddities` are noted.
    """
    captions = []
    for number, caption in enumerate(map(str.strip, entry.captions), start=1):
        place = entry.where if len(entry.captions) == 1 else f"caption {number} of {entry.where}"
        if not caption:
            findings.add(Kind.EMPTY, f"{place} ({entry.file})", path)
            continue
        if fault := caption_fault(caption):
            findings.add(Kind.MALFORMED, f"{place} ({entry.file}): {fault}", path)
        else:
            for kind in oddities(caption, entry):
                findings.add(kind, f"{place} ({entry.file}): {short_repr(caption)}", path)
        if len(caption) <= MAX_CHARACTERS:
            captions.append(caption)
    return captions


def caption_fault(caption: str) -> str | None:
    """The fault of a text that is not one caption, with the remedy; None for a sound caption."""
    if len(caption) > MAX_CHARACTERS:
        return (
            f"a caption of {len(caption):,} characters, more than {MAX_CHARACTERS:,}; is a quote left open, or a line "
            "end missing?"
        )
    if re.search("[\ud800-\udfff]", caption):
        return f"a caption with half a character, {caption[:60]!a}. Write the whole character, or delete it."
    if is_list(caption):
        return f"a list as one caption, {short_repr(caption)}. Write it as a JSON list, or each caption separately."
    if mark := MARKS.search(caption):
        return f"a caption with the mark '{mark[0]}' of another program. Remove such marks: training adds its own."
    return None


def is_list(caption: str) -> bool:
    """Whether a text is a list, a tuple or a set of texts, as JSON, Python or NumPy writes it."""
    if (match := LIST.fullmatch(caption)) is None:
        return False
    if match[1] == "[":
        return True
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):  # parentheses also enclose sentences
        return not isinstance(ast.literal_eval(caption.strip()), str)
    return False


def oddities(caption: str, entry: Entry) -> Iterator[Kind]:
    """What `caption check` notes about a caption of an entry, and `caption score` counts."""
    if LINE_END.search(caption):
        yield Kind.LINES
    if MARKUP.search(caption):
        yield Kind.MARKUP
    if not caption.isascii():
        if MOJIBAKE.search(caption):
            yield Kind.ENCODING
        if "İ" in caption:
            yield Kind.DOTTED
    if entry.rejected:
        yield Kind.REJECTED


def check_splits(splits: Splits, findings: Findings, source: str = "") -> None:
    """Report empty splits, images without captions or with a blank one, images in two splits or twice in one, two
    images with one id, and image files that do not exist.

    Raises:
        DataError: there are neither splits nor findings; a split has an unknown name.
    """
    if not splits and not findings:
        where = f" in {source}" if source else ""
        raise DataError(f"there is no split to read{where}: give at least one of {', '.join(SPLIT_NAMES)}.")
    check_split_names(splits)
    for split, images in splits.items():
        if not images:
            findings.add(Kind.EMPTY_SPLIT, f"'{split}'")
        by_id: dict[int | str, CaptionedImage] = {}
        for image in images:
            if not all(image.captions) or not image.captions:
                kind = Kind.EMPTY if image.captions else Kind.UNCAPTIONED
                findings.add(kind, image.within(split), image.path)
            first = by_id.setdefault(image.id, image)
            if first.path != image.path:  # one file listed twice is another finding
                text = f"{image.within(split)} is both '{first.path}' and '{image.path}'"
                findings.add(Kind.SAME_ID, text, first.path, image.path)
    _check_overlap(splits, findings)
    findings.extend(_missing(image.path for images in splits.values() for image in images))


def _check_overlap(splits: Splits, findings: Findings) -> None:
    """Images are compared by file, because ids may start from 0 in every split."""
    splits_of: dict[tuple[str, str], list[str]] = {}
    for split, images in splits.items():
        for image, file in zip(images, real_files(image.path for image in images), strict=True):
            earlier = splits_of.setdefault(file, [])
            if split in earlier:
                findings.add(Kind.REPEATED, f"'{image.path}' is listed twice in split '{split}'", image.path)
            elif earlier:
                text = f"'{image.path}' is in the splits '{earlier[0]}' and '{split}'"
                findings.add(Kind.OVERLAP, text, image.path)
            earlier.append(split)


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
    by_folder: dict[str, dict[str, None]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        by_folder.setdefault(folder, {})[name] = None
    for folder, names in by_folder.items():
        reason = ""
        try:
            with os.scandir(folder or ".") as listing:
                present = {entry.name for entry in listing if _is_file(entry)}
        except (OSError, ValueError) as error:  # ValueError: a null character in the name
            present, reason = set(), f" (folder '{folder or '.'}': {getattr(error, 'strerror', error)})"
        missing = [name for name in names if name not in present]
        by_spelling = {key: name for name in sorted(present) for key in spellings(name)} if missing else {}
        for name in missing:
            similar = next((by_spelling[key] for key in spellings(name) if key in by_spelling), None)
            if "\\" in name and os.path.isfile(os.path.join(folder, name.replace("\\", "/"))):
                similar = name.replace("\\", "/")
            hint = f" (there is '{similar}': write this name)" if similar else reason
            path_text = os.path.join(folder, name)
            yield Finding(Kind.MISSING, f"'{path_text}'{hint}", (path_text,))


def spellings(name: str) -> tuple[str, str]:
    """A file name in lower case, in one form of Unicode and without URL escapes; and the same without its suffix."""
    plain = unicodedata.normalize("NFC", unquote(name)).casefold()
    return plain, os.path.splitext(plain)[0]


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself, or to a name that is too long
        return False
