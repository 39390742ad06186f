"""The outputs of commands: their formats, and their paths, checked before any work is done."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from caption.core.errors import UserError, printable
from caption.core.runtime.atomic_files import (
    MARK,
    OutputError,
    is_device,
    is_own,
    make_folder,
    names_beside,
    short_name,
)

FIGURES = tuple(
    f".{name}"
    for name in "png pdf svg jpg jpeg webp tif tiff eps ps gif avif svgz raw rgba".split()  # noqa: SIM905
)
"""Suffixes of figures. Matplotlib before 3.11 lacks gif and avif. pgf is not included: it needs LaTeX and omits
photos."""
ANIMATIONS = (".gif", ".webp", ".mp4")
"""Suffixes of animations."""


def check_encoder(path: Path) -> None:
    """Check that an animation of this name can be written.

    Raises:
        UserError: it needs ffmpeg, which is not installed.
    """
    if path.suffix.lower() == ".mp4" and shutil.which("ffmpeg") is None:
        raise UserError(
            f"{printable(path)}: .mp4 files are written by ffmpeg, which is not installed: install it, or name a .gif "
            "or .webp"
        )


def marked(extension: str) -> dict[str, Any]:
    """Arguments of `savefig` that write our mark, for formats that can contain it."""
    if extension == "png":
        return {"metadata": {"Software": MARK}}
    if extension in ("pdf", "svg", "eps", "ps"):
        return {"metadata": {"Creator": MARK}}
    if extension in ("jpg", "jpeg", "tif", "tiff", "webp", "avif"):
        from PIL import ExifTags, Image

        exif = Image.Exif()
        exif[ExifTags.Base.Software] = MARK
        return {"pil_kwargs": {"exif": exif}}
    return {"pil_kwargs": {"comment": MARK}} if extension == "gif" else {}


Identity = tuple[int, int]
"""Device and inode number of a file."""


def identities(inputs: Iterable[str]) -> dict[Identity, str]:
    """The names of the inputs that are files, by an identity that is the same for all names of a file."""
    return {identity: name for name in inputs if (identity := _identity(name)) is not None}


def check_outputs(
    outputs: Mapping[str, Sequence[Path]], inputs: Iterable[str] | dict[Identity, str] = ()
) -> None:
    """Check that all outputs can be written without destroying other files, and make their folders.

    Args:
        outputs: paths by the option that named them; see `output_paths`.
        inputs: photos, models and all other files that are read; for a command that checks often, their `identities`.

    Raises:
        UserError: an output is also an input, under any name; it exists and was not written by this package; two
            options name one file; or it cannot be written.
    """
    read = inputs if isinstance(inputs, dict) else identities(inputs)
    options: dict[str, str] = {}
    folders: dict[Path, str] = {}
    for option, paths in outputs.items():
        for path in paths:
            shown = printable(path)
            if (name := read.get(_identity(path) or (-1, -1))) is not None:
                raise UserError(
                    f"{option} would overwrite the input '{printable(name)}' with {shown}: choose another name"
                )
            if not _is_replaceable(path, option):
                raise UserError(
                    f"{option} would overwrite {shown}, which this command did not write: move it away, or choose "
                    "another name"
                )
            real = os.path.realpath(path).casefold()
            if options.setdefault(real, option) != option:
                raise UserError(f"{option} and {options[real]} name one file, {shown}: choose another name")
            if not is_device(path):
                folders.setdefault(path.parent, option)
    for folder, option in folders.items():
        above = (os.path.realpath(parent).casefold() for parent in (folder, *folder.parents))
        if (file := next((parent for parent in above if parent in options), None)) is not None:
            raise UserError(
                f"{option} would be in the folder {printable(folder)}, but that is the file of {options[file]}: choose "
                "another name"
            )
    for folder, option in folders.items():
        make_folder(folder, option)


def _is_replaceable(path: Path, option: str) -> bool:
    """Whether a file may be written at `path`: nothing exists there, this package wrote it, or it is a device or pipe.

    Raises:
        UserError: a file cannot have this name.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError) as error:  # it is too long, or has a null character
        reason = error.strerror if isinstance(error, OSError) else "it has a null character"
        raise OutputError(
            f"{option} {printable(path)[:300]} cannot be the name of a file: {reason}"
        ) from None
    if not os.path.exists(path):  # a link that leads nowhere
        return False
    return path.is_char_device() or path.is_fifo() or (path.is_file() and (is_device(path) or is_own(path)))


def _identity(path: str | Path) -> Identity | None:
    """Device and inode number of a file, the same for all its names; None if it is not a regular file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return (status.st_dev, status.st_ino) if stat.S_ISREG(status.st_mode) else None


def output_paths(target: str, inputs: Sequence[str], suffixes: Sequence[str], option: str) -> list[Path]:
    """The path of each input's output.

    Args:
        target: a file or a folder. It is a folder if it exists as one, ends in a slash or has no suffix.
        inputs: paths of the inputs.
        suffixes: see `output_file`; outputs in a folder have the first one. They are named after the stems of the
            inputs; repeated stems get a number: x, x-2, x-3.
        option: the option that named the target, for messages.

    Raises:
        UserError: the target is one file for several inputs, or has another suffix.
    """
    path = Path(os.path.expanduser(target))
    is_folder = os.path.isdir(path) or target.endswith(("/", "\\")) or not path.suffix
    if not is_folder or is_device(path):
        if len(inputs) > 1:
            raise UserError(f"{option} {target} is one file for {len(inputs)} photos: name a folder")
        return [output_file(target, suffixes, option)]
    taken: set[str] = set()  # in lower case: on some file systems "A.png" and "a.png" are the same file
    names: dict[str, Iterator[Path]] = {}  # by stem, so that many equal stems take linear time
    paths: list[Path] = []
    for name in inputs:
        stem = short_name(Path(name).stem)
        candidates = names.setdefault(stem.casefold(), names_beside(path / f"{stem}{suffixes[0]}"))
        paths.append(next(candidate for candidate in candidates if candidate.name.casefold() not in taken))
        taken.add(paths[-1].name.casefold())
    return paths


def output_file(target: str, suffixes: Sequence[str], option: str) -> Path:
    """The path of a single output.

    Args:
        target: a file; also a device or pipe, such as /dev/stdout.
        suffixes: in lower case and with their dots; the file must have one of them, unless it is a device.
        option: the option that named it, for messages.

    Raises:
        UserError: it is a folder, or has another suffix.
    """
    path = Path(os.path.expanduser(target))
    if os.path.isdir(path):
        raise UserError(f"{option} {printable(target)} is a folder: name a file")
    if path.suffix.lower() not in suffixes and not is_device(path):
        raise UserError(f"{option} {printable(target)}: end its name in {' or '.join(suffixes)}")
    return path


def new_file(target: str, suffixes: Sequence[str], option: str) -> Path:
    """The checked path of an output that must not exist yet; see `output_file`. A missing folder is made."""
    path = output_file(target, suffixes, option)
    if os.path.lexists(path):
        raise UserError(f"{option} {printable(target)} exists: choose another name, or delete it")
    check_outputs({option: [path]})
    return path
