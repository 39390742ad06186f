"""Laying out a data set: a plan of what goes where, and writing it.

Every file is written whole or not at all, under a name that the plan gives. Existing files are never overwritten.
"""

from __future__ import annotations

import io
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from caption.core.errors import DataError
from caption.core.runtime import files
from caption.core.runtime.inputs import MEMBER, read_input
from caption.core.runtime.progress import progress_bar
from caption.data.decoding import identified
from caption.data.prepare.downloads import Member


@dataclass
class Plan:
    """The files of a data set. Keys are paths below its folder, with slashes."""

    images: dict[str, Member] = field(default_factory=dict)
    """In the order of the downloads."""
    texts: dict[str, bytes] = field(default_factory=dict)
    summary: list[str] = field(default_factory=list)
    """What the downloads hold, for the user."""


def lay_out(plan: Plan, folder: Path) -> list[str]:
    """Write the files that do not exist yet, and check the images that do.

    It can be interrupted at any time; the same call goes on from there.

    Returns:
        damaged images, each with the reason; they are not written.

    Raises:
        DataError: a file exists with other content; the disk has too little room or fails; a download is damaged.
    """
    try:
        existing = {path for path in (*plan.images, *plan.texts) if os.path.lexists(folder / path)}
        for path in existing:
            target, text = folder / path, plan.texts.get(path)
            size = plan.images[path].size if text is None else len(text)
            has_size = target.is_file() and target.stat().st_size == size
            if not has_size or (text is not None and read_input(target, MEMBER) != text):
                raise DataError(
                    f"'{target}' exists and is not the download's. Move it away, or choose another --out."
                )
        size = sum(member.size for path, member in plan.images.items() if path not in existing)
        files.check_room(folder, size, "the images")
        files.make_folder(folder, "--out")
        for path, data in plan.texts.items():
            if path not in existing:
                _write(folder / path, data)
        damaged = []
        with progress_bar("copying", len(plan.images)) as advance:
            for path, member in plan.images.items():
                target = folder / path
                if path in existing:
                    if fault := _copy_fault(read_input(target, MEMBER), member):
                        damaged.append(f"'{target}': {fault}. Delete it, and give the same command again")
                elif fault := image_fault(data := member.read()):
                    damaged.append(f"{member}: {fault}")
                else:
                    _write(target, data, member.file)
                advance(1)
        return damaged
    except files.OutputError as error:
        raise DataError(f"{error}. The same command goes on from here.") from error
    except OSError as error:
        raise DataError(f"'{folder}' cannot be read ({error.strerror}).") from error


def damaged_images(plan: Plan) -> list[str]:
    """The damaged ones among the images of a plan, each with the reason. Nothing is written."""
    damaged = []
    with progress_bar("checking", len(plan.images)) as advance:
        for member in plan.images.values():
            if fault := image_fault(member.read()):
                damaged.append(f"{member}: {fault}")
            advance(1)
    return damaged


def image_fault(data: bytes) -> str | None:
    """Why these bytes are not an image; None if they are. Only the header is decoded."""
    if not data:
        return "it is empty"
    try:
        with identified(io.BytesIO(data)) as image:
            return None if min(image.size) > 0 else "it has no pixels"
    except Exception as error:  # Pillow's decoders raise almost anything
        return f"its header cannot be decoded ({type(error).__name__})"


def _copy_fault(data: bytes, member: Member) -> str | None:
    """Why an image that was written before is not the download's, as far as a zip's checksum tells; None if it is."""
    differs = member.crc not in (None, zlib.crc32(data))
    return image_fault(data) or ("it differs from the download" if differs else None)


def _write(target: Path, data: bytes, source: Path | None = None) -> None:
    """Write a new file. If it is the copy of a file, it becomes a hard link where the file system can: that takes no
    disk space."""
    files.make_parents(target)
    if source is not None:
        files.link_or_copy(source, target)
        return
    with files.creating(target, durable=False) as file:
        file.write(data)
