"""Every output option of every command, tried on what may stand at its place: nothing of the user's is lost.

The options come from the parsers; a new one fails `test_every_option_is_known` until it is sorted in
`helpers.output_matrix`. After each run the whole sandbox is compared: all files that this package did not write have
the same bytes, mode and time, nothing is new except at the named place, the exit code is 0, 1 or 2, and there is no
traceback. Names that no file can have are in `tests/cli/test_cli_outputs.py`.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from helpers import output_matrix as matrix

pytestmark = pytest.mark.usefixtures("tiny_commands")
FLAGS = {"--data.reader": "--data.reader.init_args.folder"}
EARLY = {"describe", "export", "import arctic", "import sgrvinod", "analyse", "compare"}
"""Commands that can refuse an output before they load a model; the files of a store depend on the model."""


def test_every_option_is_known():
    attacked = {f"{attack.command} {attack.option}" for attack in matrix.ATTACKS}
    found = {
        f"{command} {option}"
        for command, parser in matrix.parsers().items()
        for option in matrix.text_options(parser) - matrix.NOT_OUTPUTS
    }
    assert found - attacked - set(matrix.NOT_ATTACKED) == set(), "is it an output? see helpers.output_matrix"
    assert (attacked | set(matrix.NOT_ATTACKED)) - found == set(), "these are no longer options"


# -- what may stand there ------------------------------------------------------------------------------------------

Obstacle = Callable[[Path], str]
"""Puts something into the folder where the command runs, and returns the option's value."""


def text(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("the user's own text")
    path.chmod(0o600)


def link(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(
        next(folder / "elsewhere" for folder in path.parents if folder.name == "user") / "letter.txt"
    )


def obstacles(attack: matrix.Attack, products: Sequence[str]) -> Iterator[tuple[str, Obstacle]]:
    """What stands at the place of an output; `products` are the files that the command writes below its folder."""
    fresh = attack.fresh

    def put(names: Sequence[str], kind: Callable[[Path], None]) -> Obstacle:
        def setup(here: Path) -> str:
            for name in names:
                kind(here / name)
            return fresh

        return setup

    def linked_input(here: Path) -> str:
        (here / fresh).symlink_to(attack.inputs[0])
        return fresh

    def linked_folders(here: Path) -> str:
        """The folders in it lead to folders of the user with files of the same names."""
        for folder in {Path(name).parts[0] for name in products if "/" in name}:
            (here.parent / "elsewhere" / folder).mkdir()
            (here / fresh).mkdir(exist_ok=True)
            (here / fresh / folder).symlink_to(here.parent / "elsewhere" / folder)
        for name in products:
            text(here.parent / "elsewhere" / name) if "/" in name else None
        return fresh

    here_too = [name for name in attack.companions if "." in name]
    if not attack.is_folder:
        yield "an input itself", lambda here: attack.inputs[0] if attack.inputs else "photos"
        yield "a link to an input", linked_input if attack.inputs else put([fresh], link)
        yield "a text", put([fresh], text)
        yield "a link", put([fresh], link)
        for name in here_too:
            yield f"a text at {name}", put([name], text)
        return
    places = [f"{fresh}/{name}" for name in products]
    yield "a text at all names", put(places, text)
    if attack.is_slow:
        return
    yield "a link at all names", put(places, link)
    for place in {re.sub(r"\d", "0", place): place for place in places}.values():  # one of each kind
        yield f"a text at {place}", put([place], text)
    yield "files of other names", put([f"{fresh}/mine.txt", re.sub(r"\d", "7", places[-1])], text)
    yield "links in the place of its folders", linked_folders
    for folder in ("shapes", "run"):
        yield f"the folder {folder}", lambda here, folder=folder: folder


@pytest.mark.nightly
@pytest.mark.parametrize("attack", matrix.ATTACKS, ids=lambda attack: attack.name)
def test_nothing_is_lost(
    attack: matrix.Attack, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if "ray" in attack.args:
        pytest.importorskip("pyarrow")
        pytest.importorskip("ray")
    top = tmp_path / "user"
    here = top / "here"
    command = [*attack.args.split(), FLAGS.get(attack.option, attack.option)]

    def attempt(setup: Obstacle) -> list[str]:
        shutil.rmtree(top, ignore_errors=True)
        shutil.copytree(template, top, symlinks=True)
        monkeypatch.chdir(here)
        value = setup(here)
        before, own = matrix.snapshot(top), matrix.own_files(top)
        ran = matrix.run([*command, value])
        monkeypatch.chdir(tmp_path)
        inputs = [f"here/{name}" for name in attack.inputs]
        found = matrix.harm(top, before, own, ran, allowed(here / value, ran), inputs)
        if ran.code == 2 and ran.loaded and attack.command in EARLY:
            found.append(f"LATE: a model was loaded before the refusal {ran.err.strip()[-200:]}")
        return found

    def allowed(place: Path, ran: matrix.Run) -> list[Path]:
        """The places at which new files may be."""
        places = [place] if ran.code != 2 or attack.is_folder else []
        if ran.code != 2:
            places += [here / name for name in attack.companions if "." in name]
        places += [here / name for name in attack.companions if "." not in name]
        # In a folder that the user has linked there, new files may be made.
        inside = place.rglob("*") if attack.is_folder and os.path.isdir(place) else ()
        return [*places, *(path.resolve() for path in inside if path.is_symlink() and path.is_dir())]

    shutil.copytree(template, top, symlinks=True)
    monkeypatch.chdir(here)
    known = set(matrix.snapshot(top))
    ran = matrix.run([*command, attack.fresh])
    assert ran.code == 0, ran.err
    place = f"here/{attack.fresh}/"
    new = sorted(set(matrix.snapshot(top)) - known)
    files = [name.removeprefix(place) for name in new if name.startswith(place) and (top / name).is_file()]
    # Without those that are named by the time.
    products = [name for name in files if ".caption" not in name and "events.out" not in name]
    assert products or not attack.is_folder
    if matrix.own_files(top) & {f"here/{attack.fresh}"}:  # and not a file that is never replaced
        (here / attack.fresh).write_bytes((here / attack.fresh).read_bytes() + b"edited")
        assert matrix.run([*command, attack.fresh]).code == 0
        assert not (here / attack.fresh).read_bytes().endswith(b"edited")
    monkeypatch.chdir(tmp_path)
    found = [
        f"{label}: {'; '.join(faults[:2]):.500} ({len(faults)})"
        for label, setup in obstacles(attack, products)
        if (faults := attempt(setup))
    ]
    if found:
        pytest.fail("\n".join([f"{attack.name}: {len(found)} losses", *found]), pytrace=False)
