"""Everything that may stand at the place of an output: inputs under all their names, a user's files, links, folders,
pipes, and names that no file can have."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from helpers.output_matrix import Attack, run
from PIL import Image

Setup = Callable[[Path], str]
"""Puts something into the folder where the command runs, and returns the option's value."""
FOREIGN = "foreign: the user's own text\n"


class Obstacle(NamedTuple):
    label: str
    setup: Setup
    quick: bool = False
    """Whether it belongs to the selection for every run of the tests."""
    quickest: bool = False
    """Whether it does so even where each run takes a second."""


def obstacles(attack: Attack, products: Sequence[str], command: Sequence[str]) -> Iterator[Obstacle]:
    """All obstacles for an output.

    Args:
        attack: the command and its option.
        products: what it writes where nothing stands, below the folder.
        command: its arguments but for the option's value.
    """
    yield from _inputs(attack)
    yield from _names(attack)
    yield from _at_the_place(attack)
    if attack.is_folder:
        yield from _in_folder(attack, products)
    earlier = partial(_earlier, attack, command, products if attack.is_folder else ("",))
    yield Obstacle("there is an earlier result", partial(earlier, ""))
    for change in ("edited", "touched", "private") if attack.is_folder else ("edited",):
        label = f"there is an earlier result, {change}"
        yield Obstacle(label, partial(earlier, change), quick=not attack.is_folder)
    for companion in attack.companions:
        if "." in companion:
            for label in PUT.keys() - PIPES:
                yield Obstacle(f"beside it {companion} is {label}", partial(_put, attack, companion, label))


def _earlier(attack: Attack, command: Sequence[str], products: Sequence[str], change: str, here: Path) -> str:
    """The command has run before; since then, the user has changed all files, or has added one to each folder."""
    assert run([*command, attack.fresh]).code == 0
    for path in (here / attack.fresh / name for name in products):
        if change == "edited" and path.exists():
            path.write_bytes(path.read_bytes() + b" edited by the user")
        elif change == "private" and path.exists():
            path.chmod(0o600)
        elif change == "touched":
            _text(path.with_name("mine.txt"))
    return attack.fresh


# -- files that the user has put somewhere -----------------------------------------------------------------------


def _text(path: Path, content: str = FOREIGN, mode: int = 0o644) -> None:
    path.write_text(content)
    os.utime(path, (1e9, 1e9))
    path.chmod(mode)


def _elsewhere(path: Path) -> Path:
    return next(parent for parent in path.parents if (parent / "elsewhere").is_dir()) / "elsewhere"


def _full_folder(path: Path) -> None:
    path.mkdir()
    _text(path / "mine.txt")


def _linked_folder(path: Path) -> None:
    folder = _elsewhere(path) / "folder"
    if not folder.exists():
        _full_folder(folder)
    path.symlink_to(folder)


def _read_fifo(path: Path) -> None:
    """A pipe with a reader, as of `tee`."""
    os.mkfifo(path)
    threading.Thread(target=path.read_bytes, daemon=True).start()


PUT: dict[str, Callable[[Path], Any]] = {
    "a text": _text,
    "empty": lambda path: _text(path, ""),
    "an image": lambda path: Image.new("RGB", (9, 9), "teal").save(path, "PNG"),
    "private": lambda path: _text(path, mode=0o600),
    "read-only": lambda path: _text(path, mode=0o444),
    "a dangling link": lambda path: path.symlink_to("nowhere/at_all"),
    "a link to a name not taken": lambda path: path.symlink_to("not_yet"),
    "a link": lambda path: path.symlink_to(_elsewhere(path) / "letter.txt"),
    "a hard link": lambda path: os.link(_elsewhere(path) / "letter.txt", path),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
    "a full folder": _full_folder,
    "a link to a folder": _linked_folder,
    "a pipe": os.mkfifo,
    "a pipe with a reader": _read_fifo,
}
PIPES = {"a pipe", "a pipe with a reader"}


def _put(attack: Attack, name: str, label: str, here: Path) -> str:
    PUT[label](here / name)
    return attack.fresh


# -- at the place itself -----------------------------------------------------------------------------------------


def _inputs(attack: Attack) -> Iterator[Obstacle]:
    fresh = attack.fresh

    def linked(name: str, link: Callable[..., None], here: Path) -> str:
        link(here / name, here / fresh)
        return fresh

    def twice(name: str, here: Path) -> str:
        (here / "first").symlink_to(name)
        (here / fresh).symlink_to("first")
        return fresh

    def in_linked_folder(name: str, here: Path) -> str:
        (here / "linked").symlink_to(".")
        return f"linked/{name}"

    for name in attack.inputs:
        values = {
            "itself": name, "by ./": f"./{name}", "by a detour": f"photos/../{name}", "in other case": name.swapcase(),
            "inside": f"{name}/x", "with a slash": f"{name}/",
        }  # fmt: skip
        setups: dict[str, Setup] = {
            **{label: lambda here, value=value: value for label, value in values.items()},
            "absolute": lambda here, name=name: str(here / name),
            "by a link": partial(linked, name, os.symlink),
            "by a hard link": partial(linked, name, os.link),
            "by two links": partial(twice, name),
            "in a linked folder": partial(in_linked_folder, name),
        }
        for label, setup in setups.items():
            quick = name == attack.inputs[0] and label in ("itself", "by a link")
            yield Obstacle(f"input {name} {label}", setup, quick)
    folders = (".", "photos", "shapes", "shapes/images", "store", "run", "run/logs", "shards")
    for name in folders if attack.is_folder else ():
        yield Obstacle(f"folder {name}", lambda here, name=name: name, name in ("shapes", "run"))
        yield Obstacle(f"folder {name} by a link", partial(linked, name, os.symlink))


def _names(attack: Attack) -> Iterator[Obstacle]:
    fresh, suffix = attack.fresh, Path(attack.fresh).suffix
    values = {
        "in a missing folder": f"missing/{fresh}",
        "deep in missing folders": f"missing/a/b/{fresh}",
        "in /proc": f"/proc/{fresh}",
        "in /proc/self": f"/proc/self/{fresh}",
        "in /proc/self/fd": f"/proc/self/fd/{fresh}",
        "in a file": f"photo.png/{fresh}",
        "too long": f"{'x' * 300}{suffix}",
        "as long as can be": f"{'x' * 240}{suffix}",
        "a path too long": f"{'y/' * 3000}{fresh}",
        "with a null character": f"o\0{fresh}",
        "empty": "",
        "a dot": ".",
        "two dots": "..",
        "the folder above": f"../{fresh}",
        "with a line break": f"o\n{fresh}",
        "a broken character": f"o\udcff{fresh}",
        "a home of nobody": f"~nobody_at_all/{fresh}",
        "an escape sequence": f"o\x1b[31m{fresh}",
        "of another kind": "out.xyz",
        "without a suffix": "noname",
        "in capitals": fresh.upper(),
        "a URL": f"https://example.invalid/{fresh}",
        "a pipe": f"pipe:cat>{fresh}",
        "a glob": f"[a]*{fresh}",
        "a pattern": f"{{epoch}}%d{fresh}",
        "a dash": "-",
        "hidden": f".{fresh}",
        "a space": f" {fresh} ",
    }
    for label, value in values.items():
        yield Obstacle(f"name {label}", lambda here, value=value: value)
    yield Obstacle("name absolute in a missing folder", lambda here: str(here / "missing" / "a" / fresh))


def _at_the_place(attack: Attack) -> Iterator[Obstacle]:
    in_folders = {"empty", "an image", "read-only", "a hard link", "a folder", "a pipe with a reader"}
    for label in PUT.keys() - (in_folders if attack.is_folder else {"a pipe"}):
        quick = label == "a text" or (label == "a link" and not attack.is_folder)
        yield Obstacle(f"there is {label}", partial(_put, attack, attack.fresh, label), quick)
    names = (f"{attack.fresh}.partial", f".{attack.fresh}.partial", f"{attack.fresh}.tmp")
    for name in () if attack.is_folder else names:
        for label in ("a text", "a link", "a folder"):
            yield Obstacle(f"{name} is {label}", partial(_put, attack, name, label))


# -- in the folder -----------------------------------------------------------------------------------------------


def _in_folder(attack: Attack, products: Sequence[str]) -> Iterator[Obstacle]:
    def with_files(names: Sequence[str], label: str, here: Path) -> str:
        for name in names:
            path = here / attack.fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            PUT[label](path)
        return attack.fresh

    def linked_parts(filled: bool, here: Path) -> str:
        """The folders in it lead to folders of the user; filled, he has files of the same names there."""
        (here / attack.fresh).mkdir()
        for part, *rest in (Path(name).parts for name in products):
            if rest:
                foreign, own = _elsewhere(here) / part, here / attack.fresh / part
                foreign.joinpath(*rest[:-1] * filled).mkdir(parents=True, exist_ok=True)
                if filled:
                    _text(foreign.joinpath(*rest))
                if not own.is_symlink():
                    own.symlink_to(foreign)
        return attack.fresh

    def folders_as_files(here: Path) -> str:
        (here / attack.fresh).mkdir()
        for part in {Path(name).parts[0] for name in products if len(Path(name).parts) > 1}:
            _text(here / attack.fresh / part)
        return attack.fresh

    for label in [label for label in PUT if label != "a pipe with a reader"]:
        quick, quickest = label in ("a text", "a link"), label == "a text"
        yield Obstacle(f"all files are {label}", partial(with_files, products, label), quick, quickest)
    links = ("a text", "a link", "a hard link", "a dangling link")
    for name in _kinds(products):
        for label in (*links, "a link to a name not taken", "a folder"):
            yield Obstacle(f"{name} is {label}", partial(with_files, [name], label), label == "a text")
    for label in ("a text", "a link"):
        partials = [f"{name}.partial" for name in products]
        yield Obstacle(f"all partials are {label}", partial(with_files, partials, label))
    yield Obstacle("its folders are links to folders with the same names", partial(linked_parts, True), True)
    yield Obstacle("its folders are links to empty folders", partial(linked_parts, False))
    yield Obstacle("its folders are files", folders_as_files)
    others = {"another file": "mine.txt", "a file like theirs": _like(products)}
    others["a file in their folder"] = _in_theirs(products)
    for label, name in others.items():
        yield Obstacle(f"{label}, {name}, is there", partial(with_files, [name], "a text"), True)
    for name in (".caption.lock", ".caption-files.jsonl"):
        for label in (*links, "a folder", "a pipe"):
            yield Obstacle(f"{name} is {label}", partial(with_files, [name], label))


def _kinds(products: Sequence[str]) -> list[str]:
    """One product of each kind: names that differ in digits alone are of one kind."""
    return [*{re.sub(r"\d", "0", name): name for name in reversed(products)}.values()]


def _like(products: Sequence[str]) -> str:
    """A name of the same pattern as a product with a number, but with another number."""
    for name in products:
        if last := re.match(r"(.*)(\d)(\D*)$", name):
            return f"{last[1]}{'7' if last[2] != '7' else '6'}{last[3]}"
    return "like.txt"


def _in_theirs(products: Sequence[str]) -> str:
    deep = next((name for name in products if "/" in name), products[0] if products else "x")
    return str(Path(deep).with_name("mine.txt"))
