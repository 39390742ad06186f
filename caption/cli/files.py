"""Input and output files that a command line names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from caption.errors import UserError


def input_photos(arguments: Iterable[str]) -> list[str]:
    """The photos that arguments name: files as they are, and for each folder the images in it, sorted by name.

    The images of a folder are its files with a suffix that Pillow reads, without hidden files and without subfolders. A
    folder without images stays in the list; opening it as a photo then reports the error.
    """
    photos: list[str] = []
    for argument in arguments:
        try:
            inside = _images(Path(argument)) if Path(argument).is_dir() else []
        except (OSError, ValueError):  # reported when it is opened as a photo
            inside = []
        photos += inside or [argument]
    return photos


def _images(folder: Path) -> list[str]:
    from PIL import Image

    suffixes = {suffix for suffix, kind in Image.registered_extensions().items() if kind in Image.OPEN}
    return sorted(
        str(path)
        for path in folder.iterdir()
        if path.suffix.lower() in suffixes and not path.name.startswith(".") and not path.is_dir()
    )


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
    path = Path(target).expanduser()
    is_folder = path.is_dir() or target.endswith(("/", "\\")) or not path.suffix
    if not is_folder:
        if len(inputs) > 1:
            raise UserError(f"{option} {target} is one file for {len(inputs)} photos: name a folder")
        return [output_file(target, option)]
    make_folder(path, option)
    taken = set()  # in lower case: on some file systems "A.png" and "a.png" are the same file
    numbers: dict[str, int] = {}  # the last number of each stem, so that many equal stems take linear time
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
    """The path of a single output; a missing folder is made. Raises a UserError if that fails, or it is a folder."""
    path = Path(target).expanduser()
    if path.is_dir():
        raise UserError(f"{option} {target} is a folder: name a file")
    make_folder(path.parent, option)
    return path


def make_folder(folder: Path, option: str) -> None:
    """Make a folder, which `option` named, and its parents where they are missing; a UserError if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option}: the folder {folder} cannot be made: {error.strerror}") from error
