"""Every output option of every command, tried on everything that may stand at its place: nothing of the user's is lost.

The options come from the parsers; a new one fails `test_every_option_is_known` until it is sorted in
`helpers.output_matrix`. What may stand there is in `helpers.output_obstacles`. After each run the whole sandbox is
compared: all files that this package did not write have the same bytes, mode and time, nothing is new except at the
named place, the exit code is 0, 1 or 2, and there is no traceback. A selection runs at night; all of it, some
2,500 runs, or those whose label has a word such as "pipe", by hand:

    CAPTION_WHOLE_MATRIX=all python -m pytest -q -n0 tests/project/test_outputs_matrix.py
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers import output_matrix as matrix
from helpers.output_obstacles import obstacles

pytestmark = pytest.mark.usefixtures("tiny_commands")
WHOLE = os.environ.get("CAPTION_WHOLE_MATRIX", "")
FLAGS = {"--data.reader": "--data.reader.init_args.folder"}


def test_every_option_is_known():
    attacked = {f"{attack.command} {attack.option}" for attack in matrix.ATTACKS}
    found = {
        f"{command} {option}"
        for command, parser in matrix.parsers().items()
        for option in matrix.text_options(parser) - matrix.NOT_OUTPUTS
    }
    assert found - attacked - set(matrix.NOT_ATTACKED) == set(), "is it an output? see helpers.output_matrix"
    assert (attacked | set(matrix.NOT_ATTACKED)) - found == set(), "these are no longer options"


@pytest.mark.nightly
@pytest.mark.parametrize("attack", matrix.ATTACKS, ids=lambda attack: attack.name)
def test_nothing_is_lost(
    attack: matrix.Attack, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if "ray" in attack.args:
        pytest.importorskip("pyarrow")
        pytest.importorskip("ray")
    top = tmp_path / "user"
    command = [*attack.args.split(), FLAGS.get(attack.option, attack.option)]

    def attempt(label: str, setup: Any) -> list[str]:
        shutil.rmtree(top, ignore_errors=True)
        shutil.copytree(template, top, symlinks=True)
        here = top / "here"
        monkeypatch.chdir(here)
        value = setup(here)
        before, own = matrix.snapshot(top), matrix.own_files(top)
        ran = matrix.run([*command, value])
        monkeypatch.chdir(tmp_path)
        inputs = [f"here/{name}" for name in attack.inputs]
        found = matrix.harm(top, before, own, ran, allowed(here, value, ran), inputs)
        # Whether a pipe is read shows only when it is written.
        if ran.code == 2 and ran.loaded and attack.command in EARLY and "pipe" not in label:
            found.append(f"LATE: a model was loaded before the refusal {ran.err.strip()[-200:]}")
        return [f"{label}, {value!r:.100}: {'; '.join(found[:2]):.500} ({len(found)})"] * bool(found)

    def allowed(here: Path, value: str, ran: matrix.Run) -> list[Path]:
        if "\0" in value or not value:
            return []
        place = Path(os.path.normpath(Path(os.path.realpath(here)) / os.path.expanduser(value)))
        places = [place, Path(os.path.realpath(place))] if ran.code != 2 or attack.is_folder else []
        if ran.code != 2:
            places += [place.with_suffix(Path(name).suffix) for name in attack.companions if "." in name]
            places += [parent for parent in place.parents if here in parent.parents]  # missing ones
        places += [here / name for name in attack.companions if "." not in name]
        # In a folder that the user has linked there, new files may be made.
        inside = place.rglob("*") if attack.is_folder and os.path.isdir(place) else ()
        return [*places, *(path.resolve() for path in inside if path.is_symlink() and path.is_dir())]

    shutil.copytree(template, top, symlinks=True)
    monkeypatch.chdir(top / "here")
    known = set(matrix.snapshot(top))
    ran = matrix.run([*command, attack.fresh])
    assert ran.code == 0, ran.err
    place = f"here/{attack.fresh}/"
    new = sorted(set(matrix.snapshot(top)) - known)
    files = [name.removeprefix(place) for name in new if name.startswith(place) and (top / name).is_file()]
    # Without those that are named by the time.
    products = [name for name in files if ".caption" not in name and "events.out" not in name]
    assert products or not attack.is_folder
    monkeypatch.chdir(tmp_path)
    found = []
    for obstacle in obstacles(attack, products, command):
        is_selected = obstacle.quickest if attack.is_slow else obstacle.quick
        if (is_selected and not WHOLE) or WHOLE in ("all", *obstacle.label.split()):
            found += attempt(obstacle.label, obstacle.setup)
    if found:
        pytest.fail("\n".join([f"{attack.name}: {len(found)} losses", *found]), pytrace=False)


EARLY = {"describe", "export", "import arctic", "import sgrvinod", "analyse", "compare"}
"""Commands that can refuse an output before they load a model; the files of a store depend on the model."""
