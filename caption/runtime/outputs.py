"""The paths of results, checked before any work is done."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from caption.errors import UserError, printable
from caption.runtime.files import LONGEST_NAME, is_own, make_folder


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
    options: dict[str, str] = {}
    for option, paths in outputs.items():
        for path in paths:
            shown = printable(str(path))
            if (name := read.get(_identity(path) or (-1, -1))) is not None:
                raise UserError(
                    f"{option} would overwrite the input '{printable(name)}' with {shown}: choose another name"
                )
            if not _is_replaceable(path):
                raise UserError(
                    f"{option} would overwrite {shown}, which this command did not write: move it away, or choose "
                    "another name"
                )
            place = os.path.realpath(path).casefold()
            if options.setdefault(place, option) != option:
                raise UserError(f"{option} and {options[place]} name one file, {shown}: choose another name")


def _is_replaceable(path: Path) -> bool:
    """Whether a file may be written at `path`: there is none, this package wrote it, or it is a device or pipe."""
    try:
        return not stat.S_ISREG(path.stat().st_mode) or is_own(path)
    except (OSError, ValueError):  # none, or a link that leads nowhere
        return not os.path.lexists(path)


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
    stems = set()  # in lower case: on some file systems "A.png" and "a.png" are the same file
    numbers: dict[str, int] = {}  # the last number of each stem, so that many equal stems take linear time
    paths = []
    for name in inputs:
        stem = candidate = _short(Path(name).stem)
        number = numbers.get(stem.casefold(), 1)
        while candidate.casefold() in stems:
            number += 1
            candidate = f"{stem}-{number}"
        stems.add(candidate.casefold())
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
