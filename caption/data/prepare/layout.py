"""Laying out a data set: a plan of what goes where, and writing it.

Every file is written whole or not at all, under a name that the plan gives. Existing files are never overwritten.
"""

from __future__ import annotations

import io
import os
import shutil
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from PIL import Image

from caption.data.prepare.downloads import Folder, Member
from caption.errors import DataError
from caption.runtime.progress import progress_bar


@dataclass
class Plan:
    """The files of a data set. Keys are paths below its folder, with slashes."""

    images: dict[str, Member] = field(default_factory=dict)
    texts: dict[str, bytes] = field(default_factory=dict)
    summary: list[str] = field(default_factory=list)
    """What the downloads hold, for the user."""


def lay_out(plan: Plan, folder: Path, progress: bool = False) -> list[str]:
    """Write the files that do not exist yet, and check the images that do.

    It can be interrupted at any time; the same call goes on from there. With `progress`, it shows a bar on stderr.

    Returns:
        damaged images, each with the reason; they are not written.

    Raises:
        DataError: a file exists with other content; the disk has too little room or fails; a download is damaged.
    """
    try:
        new = {path: member for path, member in plan.images.items() if not _exists(folder / path, member)}
        for path, data in plan.texts.items():
            target = folder / path
            if target.exists() and target.read_bytes() != data:
                raise DataError(
                    f"'{target}' exists and is not the download's. Move it away, or choose another --out."
                )
        _check_room(folder, sum(member.size for member in new.values()))
        failed = _check_written(folder, {p: m for p, m in plan.images.items() if p not in new}, progress)
        for path, data in plan.texts.items():
            _write(folder / path, data)
        targets = {id(member): folder / path for path, member in new.items()}
        for member, data in _read_all(new.values(), "copying", progress):
            if fault := image_fault(data):
                failed.append(f"{member}: {fault}")
            else:
                _write(targets[id(member)], data, member)
        return failed
    except OSError as error:
        raise DataError(
            f"'{folder}' cannot be written ({error.strerror}). Make room or repair the disk, and give the same "
            "command again: it goes on from here."
        ) from error


def damaged_images(plan: Plan, progress: bool = False) -> list[str]:
    """The damaged ones among the images of a plan, each with the reason. Nothing is written."""
    images = _read_all(plan.images.values(), "checking", progress)
    return [f"{member}: {fault}" for member, data in images if (fault := image_fault(data))]


def image_fault(data: bytes) -> str | None:
    """Why these bytes are not an image; None if they are. Only the header is decoded."""
    if not data:
        return "it is empty"
    try:
        with Image.open(io.BytesIO(data)) as image:
            return None if min(image.size) > 0 else "it has no pixels"
    except Exception as error:  # Pillow's decoders raise almost anything
        return f"its header cannot be decoded ({type(error).__name__})"


def _check_written(folder: Path, written: dict[str, Member], progress: bool) -> list[str]:
    """The damaged ones among the images that were written before."""
    failed = []
    copies = [copy for copy in Folder(folder).members if copy.path in written] if written else []
    for copy, data in _read_all(copies, "checking", progress):
        fault = image_fault(data)
        if not fault and written[copy.path].crc not in (None, zlib.crc32(data)):
            fault = "it differs from the download"
        if fault:
            failed.append(f"'{folder / copy.path}': {fault}. Delete it, and give the same command again")
    return failed


def _read_all(members: Iterable[Member], activity: str, progress: bool) -> Iterator[tuple[Member, bytes]]:
    """All members with their content, download by download."""
    by_download: dict[int, list[Member]] = {}
    for member in members:
        by_download.setdefault(id(member.download), []).append(member)
    if by_download:
        with progress_bar(activity, sum(map(len, by_download.values())), show=progress) as advance:
            for group in by_download.values():
                for member, data in group[0].download.read(group):
                    yield member, data
                    advance(1)


def _exists(target: Path, member: Member) -> bool:
    """Whether the image has been written already. Raises a DataError for a file of another size."""
    if not target.exists():
        return False
    if target.stat().st_size != member.size:
        raise DataError(
            f"'{target}' exists and is not {member}: the sizes differ. Move it away, or choose another --out."
        )
    return True


def _check_room(folder: Path, needed: int) -> None:
    existing = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise DataError(
            f"the images take {needed / 1e9:.1f} GB, but the disk of '{folder}' has {free / 1e9:.1f} GB left: "
            "make room, or choose another --out."
        )


def _write(target: Path, data: bytes, member: Member | None = None) -> None:
    """Write a file whole, if it does not exist. A member of a folder is linked, which takes no disk space."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    download = member.download if member else None
    if not (member and isinstance(download, Folder) and download.link(member, partial)):
        partial.write_bytes(data)
    os.replace(partial, target)
