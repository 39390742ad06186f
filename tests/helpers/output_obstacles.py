"""Everything that may stand at the place of an output: inputs under all their names, a user's files, links, folders,
pipes, and names that no file can have."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from helpers.output_matrix import Attack, run
from PIL import Image

Setup = Callable[[Path], str]
"""Puts something into the folder where the command runs, and returns the option's value."""
LETTER = "../elsewhere/letter.txt"
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
    yield from (_at_folder if attack.is_folder else _at_file)(attack)
    if attack.is_folder:
        yield from _in_folder(attack, products)
        yield Obstacle("there is an earlier result", partial(_earlier, attack, command, products, ""))
        for change in ("edited", "touched", "private"):
            yield Obstacle(
                f"there is an earlier result, {change}", partial(_earlier, attack, command, products, change)
            )
    else:
        yield Obstacle("there is an earlier result", partial(_earlier, attack, command, (), ""))
        edited = partial(_earlier, attack, command, ("",), "edited")
        yield Obstacle("there is an earlier result, edited", edited, True)
    for companion in attack.companions:
        if "." in companion:
            for label, put in PUT.items():
                yield Obstacle(f"beside it {companion} is {label}", partial(_beside, attack, companion, put))


def _earlier(attack: Attack, command: Sequence[str], products: Sequence[str], change: str, here: Path) -> str:
    """The command has run before; since then, the user has changed all files, or has added one to each folder."""
    assert run([*command, attack.fresh]).code == 0
    for name in products:
        path = here / attack.fresh / name
        if change == "edited" and path.exists():
            path.write_bytes(path.read_bytes() + b" edited by the user")
        elif change == "private" and path.exists():
            path.chmod(0o600)
        elif change == "touched":
            _text(path.with_name("mine.txt"))
    return attack.fresh


# -- files that the user has put somewhere -----------------------------------------------------------------------


def _text(path: Path) -> None:
    path.write_text(FOREIGN)
    os.utime(path, (1e9, 1e9))


def _empty(path: Path) -> None:
    path.touch()
    os.utime(path, (1e9, 1e9))


def _image(path: Path) -> None:
    Image.new("RGB", (9, 9), "teal").save(path, "PNG")


def _private(path: Path) -> None:
    _text(path)
    path.chmod(0o600)


def _read_only(path: Path) -> None:
    _text(path)
    path.chmod(0o444)


def _dangling(path: Path) -> None:
    path.symlink_to("nowhere/at_all")


def _dangling_beside(path: Path) -> None:
    path.symlink_to("not_yet")


def _link(path: Path) -> None:
    letter = _top(path) / "elsewhere" / "letter.txt"
    path.symlink_to(letter)


def _hard_link(path: Path) -> None:
    os.link(_top(path) / "elsewhere" / "letter.txt", path)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _folder(path: Path) -> None:
    path.mkdir()


def _full_folder(path: Path) -> None:
    path.mkdir()
    _text(path / "mine.txt")


def _linked_folder(path: Path) -> None:
    folder = _top(path) / "elsewhere" / "folder"
    if not folder.exists():
        _full_folder(folder)
    path.symlink_to(folder)


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _read_fifo(path: Path) -> None:
    """A pipe with a reader, as of `tee`."""
    os.mkfifo(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def drain() -> None:
        for _ in range(600):
            try:
                if not os.read(descriptor, 1 << 16):
                    threading.Event().wait(0.05)
            except BlockingIOError:
                threading.Event().wait(0.05)
        os.close(descriptor)

    threading.Thread(target=drain, daemon=True).start()


PUT: dict[str, Callable[[Path], None]] = {
    "a text": _text, "empty": _empty, "an image": _image, "private": _private, "read-only": _read_only,
    "a dangling link": _dangling, "a link to a name not taken": _dangling_beside, "a link": _link,
    "a hard link": _hard_link, "a link to itself": _loop, "a folder": _folder, "a full folder": _full_folder,
    "a link to a folder": _linked_folder,
}  # fmt: skip


def _top(path: Path) -> Path:
    return next(parent for parent in path.parents if (parent / "elsewhere").is_dir())


# -- at the place itself -----------------------------------------------------------------------------------------


def _inputs(attack: Attack) -> Iterator[Obstacle]:
    fresh = attack.fresh

    def linked(name: str, link: Callable[[Path, Path], None], here: Path) -> str:
        link(here / name, here / fresh)
        return fresh

    def in_linked_folder(name: str, here: Path) -> str:
        (here / "linked").symlink_to(".")
        return f"linked/{name}"

    def twice(name: str, here: Path) -> str:
        (here / "first").symlink_to(name)
        (here / fresh).symlink_to("first")
        return fresh

    for number, name in enumerate(attack.inputs):
        values = {
            "itself": name, "by ./": f"./{name}", "by a detour": f"photos/../{name}", "in other case": name.swapcase(),
            "inside": f"{name}/x", "with a slash": f"{name}/",
        }  # fmt: skip
        for label, value in values.items():
            yield Obstacle(
                f"input {name} {label}", lambda here, value=value: value, number == 0 and label == "itself"
            )
        yield Obstacle(f"input {name} absolute", lambda here, name=name: str(here / name))
        yield Obstacle(
            f"input {name} by a link",
            partial(linked, name, lambda old, new: new.symlink_to(old)),
            number == 0,
        )
        yield Obstacle(
            f"input {name} by a hard link", partial(linked, name, lambda old, new: os.link(old, new))
        )
        yield Obstacle(f"input {name} by two links", partial(twice, name))
        yield Obstacle(f"input {name} in a linked folder", partial(in_linked_folder, name))
    if attack.is_folder:
        for name in (
            *(".", "photos", "shapes", "shapes/images", "store", "run", "run/logs", "shards", "download"),
        ):
            yield Obstacle(f"folder {name}", lambda here, name=name: name, name in ("shapes", "run"))
            yield Obstacle(
                f"folder {name} by a link", partial(linked, name, lambda old, new: new.symlink_to(old))
            )


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


def _put(fresh: str, put: Callable[[Path], None], here: Path) -> str:
    put(here / fresh)
    return fresh


def _beside(attack: Attack, companion: str, put: Callable[[Path], None], here: Path) -> str:
    put(here / companion)
    return attack.fresh


def _at_file(attack: Attack) -> Iterator[Obstacle]:
    for label, put in PUT.items():
        yield Obstacle(f"there is {label}", partial(_put, attack.fresh, put), label in ("a text", "a link"))
    yield Obstacle("there is a pipe with a reader", partial(_put, attack.fresh, _read_fifo))
    for name in (f"{attack.fresh}.partial", f".{attack.fresh}.partial", f"{attack.fresh}.tmp"):
        for label in ("a text", "a link", "a folder"):
            yield Obstacle(f"{name} is {label}", partial(_beside, attack, name, PUT[label]))


def _at_folder(attack: Attack) -> Iterator[Obstacle]:
    for label in (
        *("a text", "private", "a dangling link", "a link to a name not taken", "a link", "a link to itself"),
        *("a full folder", "a link to a folder"),
    ):
        yield Obstacle(f"there is {label}", partial(_put, attack.fresh, PUT[label]), label == "a text")
    yield Obstacle("there is a pipe", partial(_put, attack.fresh, _fifo))


# -- in the folder -----------------------------------------------------------------------------------------------


def _in_folder(attack: Attack, products: Sequence[str]) -> Iterator[Obstacle]:
    def with_files(names: Sequence[str], put: Callable[[Path], None], here: Path) -> str:
        for name in names:
            path = here / attack.fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            put(path)
        return attack.fresh

    def partials(put: Callable[[Path], None], here: Path) -> str:
        return with_files([f"{name}.partial" for name in products], put, here)

    def linked_parts(here: Path) -> str:
        """The folders in it lead to folders of the user, who has files of the same names there."""
        top = _top(here / "x")
        for name in products:
            part, *rest = Path(name).parts
            if rest:
                foreign = top / "elsewhere" / part
                (foreign / Path(*rest)).parent.mkdir(parents=True, exist_ok=True)
                _text(foreign / Path(*rest))
                (here / attack.fresh).mkdir(exist_ok=True)
                if not (here / attack.fresh / part).is_symlink():
                    (here / attack.fresh / part).symlink_to(foreign)
        return attack.fresh

    def empty_linked_parts(here: Path) -> str:
        for name in products:
            part, *rest = Path(name).parts
            if rest:
                foreign = _top(here / "x") / "elsewhere" / part
                foreign.mkdir(exist_ok=True)
                (here / attack.fresh).mkdir(exist_ok=True)
                if not (here / attack.fresh / part).is_symlink():
                    (here / attack.fresh / part).symlink_to(foreign)
        return attack.fresh

    for label, put in PUT.items():
        quick, quickest = label in ("a text", "a link"), label == "a text"
        yield Obstacle(f"all files are {label}", partial(with_files, products, put), quick, quickest)
    yield Obstacle("all files are a pipe", partial(with_files, products, _fifo))
    for name in _kinds(products):
        for label in (
            *("a text", "a link", "a hard link", "a dangling link", "a link to a name not taken", "a folder"),
        ):
            quick = label == "a text"
            yield Obstacle(f"{name} is {label}", partial(with_files, [name], PUT[label]), quick)
    for label in ("a text", "a link"):
        yield Obstacle(f"all partials are {label}", partial(partials, PUT[label]))
    yield Obstacle("its folders are links to folders with the same names", linked_parts, True)
    yield Obstacle("its folders are links to empty folders", empty_linked_parts)
    yield Obstacle("its folders are files", partial(_folders_as_files, attack, products))
    others = {
        "another file": "mine.txt",
        "a file like theirs": _like(products),
        "a file in their folder": _in_theirs(products),
    }
    for label, name in others.items():
        yield Obstacle(f"{label}, {name}, is there", partial(with_files, [name], _text), True)
    for name in (".caption.lock", ".caption-files.jsonl"):
        for label in ("a text", "a link", "a hard link", "a dangling link", "a folder"):
            yield Obstacle(f"{name} is {label}", partial(with_files, [name], PUT[label]))
        yield Obstacle(f"{name} is a pipe", partial(with_files, [name], _fifo))


def _folders_as_files(attack: Attack, products: Sequence[str], here: Path) -> str:
    (here / attack.fresh).mkdir()
    for part in {Path(name).parts[0] for name in products if len(Path(name).parts) > 1}:
        _text(here / attack.fresh / part)
    return attack.fresh


def _kinds(products: Sequence[str]) -> list[str]:
    """One product of each kind: names that differ in digits alone are of one kind."""
    by_kind: dict[str, str] = {}
    for name in products:
        by_kind.setdefault("".join("0" if letter.isdigit() else letter for letter in name), name)
    return list(by_kind.values())


def _like(products: Sequence[str]) -> str:
    """A name of the same pattern as a product with a number, but with another number."""
    for name in products:
        digits = [place for place, letter in enumerate(name) if letter.isdigit()]
        if digits:
            last = digits[-1]
            return f"{name[:last]}{'7' if name[last] != '7' else '6'}{name[last + 1 :]}"
    return "like.txt"


def _in_theirs(products: Sequence[str]) -> str:
    deep = next((name for name in products if "/" in name), products[0] if products else "x")
    return str(Path(deep).with_name("mine.txt"))
