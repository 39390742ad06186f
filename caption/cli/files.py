"""Input and output files that a command line names. Outputs never replace what this package did not write."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from caption.errors import UserError, first_few, printable
from caption.runtime.outputs import is_replaceable

CAMERA_FORMATS = frozenset(
    {".heic", ".heif", ".avif", ".jxl", ".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf"}
)
"""Suffixes of photos, whether Pillow reads them or not: one that it cannot read is reported, not skipped."""
LONGEST_NAME = 200
"""Bytes of an output's name before its suffix; file systems allow 255."""


class Inputs(NamedTuple):
    """The photos that a command line names."""

    photos: list[str]
    notes: list[str]
    """What was left out of each folder, in a sentence."""


def input_photos(arguments: Iterable[str]) -> Inputs:
    """The photos that arguments name: files as they are, and for each folder the images in it, sorted by name.

    The images of a folder are its files with a suffix that Pillow reads or that cameras use, and files without a
    suffix that begin like an image. Hidden files are left out silently; other files and subfolders with a note. A
    folder without images stays in the list; opening it as a photo then reports the error.
    """
    photos: list[str] = []
    notes: list[str] = []
    for argument in arguments:
        inside: list[str] = []
        if os.path.isdir(argument):
            with suppress(OSError):  # reported when it is opened as a photo
                inside, others, folders = _sorted_out(argument)
                left_out = [
                    f"{len(names)} {what if len(names) == 1 else several} ({first_few(map(printable, names))})"
                    for names, what, several in (
                        (others, "file that is no image", "files that are no images"),
                        (folders, "subfolder", "subfolders"),
                    )
                    if names
                ]
                if inside and left_out:
                    notes.append(f"'{printable(argument)}': left out {' and '.join(left_out)}")
        photos += inside or [argument]
    return Inputs(photos, notes)


def image_suffixes() -> frozenset[str]:
    """The suffixes, in lower case, of files that Pillow reads or that cameras write."""
    from PIL import Image

    return CAMERA_FORMATS | {
        suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN
    }


def _sorted_out(folder: str) -> tuple[list[str], list[str], list[str]]:
    """Paths of the images in a folder, names of its other files, and names of its subfolders, each sorted."""
    suffixes = image_suffixes()
    images, others, folders = [], [], []
    with os.scandir(folder) as listing:
        entries = sorted((entry for entry in listing if entry.name[0] != "."), key=lambda entry: entry.name)
    for entry in entries:
        suffix = os.path.splitext(entry.name)[1].lower()
        if _is_folder(entry):
            folders.append(entry.name)
        elif suffix in suffixes or (not suffix and _begins_like_an_image(entry.path)):
            images.append(entry.path)
        else:
            others.append(entry.name)
    return images, others, folders


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or to a name that is too long; reported when it is opened
        return False


def _begins_like_an_image(path: str) -> bool:
    from PIL import Image

    try:
        with Image.open(path):
            return True
    except Exception:  # Pillow's readers raise almost anything
        return False


def refuse_overwriting(outputs: Mapping[str, Sequence[Path]], inputs: Iterable[str]) -> None:
    """Refuse outputs that would destroy a file.

    Args:
        outputs: paths by the option that named them.
        inputs: the photos and the model.

    Raises:
        UserError: an output is also an input, under whatever name; it exists, and not this package wrote it; or two
            options name one file.
    """
    read = {identity: name for name in inputs if (identity := _identity(name)) is not None}
    written: dict[str, str] = {}
    for option, paths in outputs.items():
        for path in paths:
            shown = printable(str(path))
            if (name := read.get(_identity(path) or (-1, -1))) is not None:
                raise UserError(
                    f"{option} would overwrite the input '{printable(name)}' with {shown}: choose another name"
                )
            if not is_replaceable(path):
                raise UserError(
                    f"{option} would overwrite {shown}, which this command did not write: move it away, or choose "
                    "another name"
                )
            place = os.path.realpath(path).casefold()
            if written.setdefault(place, option) != option:
                raise UserError(f"{option} and {written[place]} name one file, {shown}: choose another name")


def _identity(path: str | Path) -> tuple[int, int] | None:
    """Device and number of a file, the same for all its names; None if there is no regular file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def output_paths(target: str, inputs: Sequence[str], suffix: str, option: str) -> list[Path]:
    """The path of each input's output. Missing folders are made.

    Args:
        target: a file or a folder. It is a folder if it exists as one, ends in a slash or has no suffix.
        inputs: paths of the inputs.
        suffix: of the outputs in a folder, with its dot. They are named after the stems of the inputs; a stem that
            occurs again gets a number: x, x-2, x-3.
        option: the option that named the target, for messages.

    Raises:
        UserError: one file for several inputs, or the folder cannot be made.
    """
    path = Path(os.path.expanduser(target))
    is_folder = os.path.isdir(path) or target.endswith(("/", "\\")) or not path.suffix
    if not is_folder:
        if len(inputs) > 1:
            raise UserError(f"{option} {target} is one file for {len(inputs)} photos: name a folder")
        return [output_file(target, option)]
    make_folder(path, option)
    taken = set()  # in lower case: on some file systems "A.png" and "a.png" are the same file
    numbers: dict[str, int] = {}  # the last number of each stem, so that many equal stems take linear time
    paths = []
    for name in inputs:
        stem = candidate = _short(Path(name).stem)
        number = numbers.get(stem.casefold(), 1)
        while candidate.casefold() in taken:
            number += 1
            candidate = f"{stem}-{number}"
        taken.add(candidate.casefold())
        numbers[stem.casefold()] = number
        paths.append(path / f"{candidate}{suffix}")
    return paths


def _short(stem: str) -> str:
    """A stem to which a number and a suffix can be added."""
    return os.fsdecode(os.fsencode(stem)[:LONGEST_NAME]) if len(os.fsencode(stem)) > LONGEST_NAME else stem


def output_file(target: str, option: str) -> Path:
    """The path of a single output; a missing folder is made. Raises a UserError if that fails, or it is a folder."""
    path = Path(os.path.expanduser(target))
    if os.path.isdir(path):
        raise UserError(f"{option} {target} is a folder: name a file")
    make_folder(path.parent, option)
    return path


def new_file(target: str, option: str, suffixes: Sequence[str]) -> Path:
    """The path of an output that is never replaced, and whose name ends in one of the suffixes; see `output_file`."""
    path = output_file(target, option)
    if path.suffix not in suffixes:
        raise UserError(f"{option} {path}: end its name in {' or '.join(suffixes)}")
    if path.exists():
        raise UserError(f"{option} {path} exists: choose another name, or delete it")
    return path


def make_folder(folder: Path, option: str) -> None:
    """Make a folder, which `option` named, and its parents where they are missing; a UserError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option}: the folder {folder} cannot be made: {error.strerror}") from error
