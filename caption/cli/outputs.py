"""Where the outputs of a command go: one file for one input, or a folder with a file for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from caption.errors import UserError


def output_paths(target: str, inputs: Sequence[str], suffix: str, option: str) -> list[Path]:
    """The path of each input's output; folders are made, those above a file too.

    Args:
        target: a file, or a folder: whatever exists as one, ends in a slash or has no suffix.
        inputs: paths of the inputs.
        suffix: of the outputs in a folder, with its dot; they are named after the inputs' stems, numbered from the
            second of the same name on.
        option: the option that named the target, for messages.

    Raises:
        UserError: one file for several inputs, or the folder cannot be made.
    """
    path = Path(target).expanduser()
    is_folder = path.is_dir() or target.endswith(("/", "\\")) or not path.suffix
    if not is_folder:
        if len(inputs) > 1:
            raise UserError(f"{option} {target} is one file for {len(inputs)} photos: name a folder")
        return [output_file(target, option)]
    make_folder(path, option)
    # Case is folded, because on some file systems "A.png" and "a.png" are one file.
    taken = set()
    numbers: dict[str, int] = {}  # the last of each stem: thousands of one name need not all count up from 1
    paths = []
    for name in inputs:
        stem = candidate = Path(name).stem
        number = numbers.get(stem.casefold(), 1)
        while candidate.casefold() in taken:
            number += 1
            candidate = f"{stem}-{number}"
        taken.add(candidate.casefold())
        numbers[stem.casefold()] = number
        paths.append(path / f"{candidate}{suffix}")
    return paths


def output_file(target: str, option: str) -> Path:
    """The path of a single output; the folder above it is made.

    Raises:
        UserError: the target is a folder, or the folder above it cannot be made.
    """
    path = Path(target).expanduser()
    if path.is_dir():
        raise UserError(f"{option} {target} is a folder: name a file")
    make_folder(path.parent, option)
    return path


def make_folder(folder: Path, option: str) -> None:
    """Make a folder, unless it is there, and those above it.

    Raises:
        UserError: it cannot be made; `option` named it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option}: the folder {folder} cannot be made: {error.strerror}") from error
