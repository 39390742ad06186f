"""From what people download to the folder that a configuration names: the command line that all tools share.

Every file appears whole or not at all, under a name that the tool chose; nothing that is there is overwritten.
"""

from __future__ import annotations

import argparse
import io
import os
import shutil
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from PIL import Image

from caption.data.prepare.common import Plan
from caption.data.prepare.sources import Folder, Member, Source, open_source
from caption.data.readers.captions import located
from caption.errors import DataError, UserError
from caption.progress import progress_bar

DONE, SOME_FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130


def run(
    args: Sequence[str] | None, description: str, folder: str, plan: Callable[[Sequence[Source]], Plan]
) -> int:
    """A tool's command line.

    Args:
        args: of the command line; None = the process's.
        description: what it is for, and where the files are to be had.
        folder: where the configurations look for the data set.
        plan: finds and checks the data set among the sources.

    Returns:
        0: all is well; 1: some images are damaged, each is named; 2: wrong usage or downloads; 130: stopped.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument(
        "downloads", nargs="*", metavar="PATH", help="archives, folders or files, as downloaded"
    )
    parser.add_argument("--out", metavar="DIR", default=folder, help=f"folder to lay out (default {folder})")
    parser.add_argument(
        "--check-only", action="store_true", help="write nothing; without PATH, check what is in --out"
    )
    options = parser.parse_args(args)
    if not (options.downloads or options.check_only):
        parser.error("give what you downloaded, or --check-only to check what is there already")
    try:
        prepared = plan([open_source(path) for path in options.downloads or [options.out]])
        for line in prepared.summary:
            print(line, file=sys.stderr)
        failed = _checked(prepared) if options.check_only else lay_out(prepared, located(options.out))
    except UserError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return WRONG_USAGE
    except KeyboardInterrupt:
        print(f"{parser.prog}: stopped; the same command goes on from here", file=sys.stderr)
        return INTERRUPTED
    for fault in failed:
        print(f"damaged: {fault}", file=sys.stderr)
    done = "checked" if options.check_only else f"in '{options.out}'"
    print(f"{len(prepared.images) - len(failed):,} images {done}, {len(failed)} damaged", file=sys.stderr)
    return SOME_FAILED if failed else DONE


def lay_out(plan: Plan, folder: Path) -> list[str]:
    """Write what is not there yet; what is there stays as it is.

    Every file appears whole or not at all, so that it can be stopped at any moment and goes on when called again.

    Returns:
        damaged images, each with the reason; they are left out.

    Raises:
        DataError: a file is there with other content; the disk has too little room or fails; a source is damaged.
    """
    try:
        return _laid_out(plan, folder)
    except OSError as error:
        raise DataError(
            f"'{folder}' cannot be written ({error.strerror}). Make room or repair the disk, and give the same "
            "command again: it goes on from here."
        ) from error


def _laid_out(plan: Plan, folder: Path) -> list[str]:
    new = {path: member for path, member in plan.images.items() if not _is_there(folder / path, member)}
    for path, data in plan.texts.items():
        _check_text(folder / path, data)
    _check_room(folder, sum(member.size for member in new.values()))
    failed = _check_old(folder, {path: member for path, member in plan.images.items() if path not in new})
    for path, data in plan.texts.items():
        _write(folder / path, data)
    targets = {id(member): folder / path for path, member in new.items()}
    for member, data in _read_all(new.values(), "copying"):
        fault = _fault(data)
        if fault:
            failed.append(f"{member}: {fault}")
        else:
            _write(targets[id(member)], data, member)
    return failed


def _check_old(folder: Path, old: Mapping[str, Member]) -> list[str]:
    """Damaged ones among the images that are there already."""
    failed = []
    copies = Folder(folder).members if old else []
    by_path = {copy.path: copy for copy in copies if copy.path in old}
    for copy, data in _read_all(by_path.values(), "checking"):
        crc = old[copy.path].crc
        fault = _fault(data) or (
            "it differs from the download" if crc not in (None, zlib.crc32(data)) else None
        )
        if fault:
            failed.append(f"'{folder / copy.path}': {fault}. Delete it, and give the same command again")
    return failed


def _checked(plan: Plan) -> list[str]:
    """Damaged images among those planned, each with the reason."""
    found = ((member, _fault(data)) for member, data in _read_all(plan.images.values(), "checking"))
    return [f"{member}: {fault}" for member, fault in found if fault]


def _read_all(members: Iterable[Member], doing: str) -> Iterator[tuple[Member, bytes]]:
    """All members with their content, source by source, with a progress bar."""
    by_source: dict[int, list[Member]] = {}
    for member in members:
        by_source.setdefault(id(member.source), []).append(member)
    if not by_source:
        return
    with progress_bar(doing, sum(map(len, by_source.values()))) as advance:
        for of_one in by_source.values():
            for member, data in of_one[0].source.read(of_one):
                yield member, data
                advance(1)


def _fault(data: bytes) -> str | None:
    """Why these bytes are no image; its header is decoded, not the picture."""
    if not data:
        return "it is empty"
    try:
        with Image.open(io.BytesIO(data)) as image:
            return None if min(image.size) > 0 else "it has no pixels"
    except Exception as error:  # at damage Pillow's decoders raise almost anything
        return f"its header cannot be decoded ({type(error).__name__})"


def _is_there(target: Path, member: Member) -> bool:
    """Whether the image has been written already. One of another size is an error: it is not overwritten."""
    if not target.exists():
        return False
    if target.stat().st_size != member.size:
        raise DataError(
            f"'{target}' exists and is not {member}: the sizes differ. Move it away, or choose another --out."
        )
    return True


def _check_text(target: Path, data: bytes) -> None:
    if target.exists() and target.read_bytes() != data:
        raise DataError(
            f"'{target}' exists and is not what was downloaded. Move it away, or choose another --out."
        )


def _check_room(folder: Path, needed: int) -> None:
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    free = shutil.disk_usage(there).free
    if needed > free:
        raise DataError(
            f"the images take {needed / 1e9:.1f} GB, but the disk of '{folder}' has {free / 1e9:.1f} GB left: "
            "make room, or choose another --out."
        )


def _write(target: Path, data: bytes, member: Member | None = None) -> None:
    """Have the data under that name, whole. What lies in a folder already gets a second name, which takes no room."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{target.name}.partial")
    partial.unlink(missing_ok=True)
    source = member.source if member else None
    if not (member and isinstance(source, Folder) and source.link(member, partial)):
        partial.write_bytes(data)
    os.replace(partial, target)
