"""Every output option of every command, tried on what may stand at its place: nothing of the user's is lost.

The options come from the parsers; a new one fails `test_every_option_is_known` until it is sorted into ATTACKS,
NOT_OUTPUTS or NOT_ATTACKED. After each run the whole sandbox is compared: all files that this package did not write
have the same bytes, mode and time, nothing is new except at the named place, the exit code is 0, 1 or 2, and there is
no traceback. Names that no file can have are in `tests/cli/test_cli_outputs.py`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from helpers import user_files as sandbox
from helpers.user_files import EVALUATE, FEATURES, FIT, QUIET, ROOT_DIR

pytestmark = pytest.mark.usefixtures("tiny_commands")
FLAGS = {"--data.reader": "--data.reader.init_args.folder"}
EARLY = {"describe", "export", "import arctic", "import sgrvinod", "analyse", "compare"}
"""Commands that can refuse an output before they load a model; the files of a store depend on the model."""


# -- the options and the commands ------------------------------------------------------------------------------------


def text_options(parser: argparse.ArgumentParser) -> set[str]:
    """The options, and the positional arguments, whose value is a text or an object, and so may be a path."""
    found = set()
    for action in parser._actions:
        kind = getattr(action, "_typehint", None) or action.type
        is_flag = action.nargs == 0 or bool(action.choices) or action.dest.endswith(".help")
        is_number = kind in (int, float, bool) or getattr(kind, "__name__", "") == "count"
        shown = str(kind)
        is_path = kind in (None, str, Path) or "str" in shown or "Path" in shown or "caption." in shown
        applied = "applied on" in str(action.metavar)  # comes from another option
        if not (is_flag or is_number or applied) and (is_path or "lightning" in shown):
            found.add(action.option_strings[-1] if action.option_strings else action.dest)
    return found


class Attack(NamedTuple):
    """An output option of a command, to be tried on everything that may stand at its place."""

    command: str
    option: str
    args: str
    """All other arguments."""
    fresh: str
    """A value with which it works."""
    inputs: tuple[str, ...] = ()
    """The files that the command reads."""
    companions: tuple[str, ...] = ()
    """Files that it writes beside the one that is named."""
    is_slow: bool = False
    """Whether each run takes a second, so that few of them belong to the tests."""

    @property
    def is_folder(self) -> bool:
        return "." not in self.fresh

    @property
    def name(self) -> str:
        args = " ".join(word for word in self.args.split() if word not in QUIET.split())
        return f"{args} {self.option} {'DIR' if self.is_folder else 'FILE'}"


MODEL = ("photo.png", "model.ckpt")
NO_LOGGER = "--trainer.logger false"
DESCRIBE = "describe photo.png --model model.ckpt"
DESCRIBE_FOLDER, PHOTOS = "describe photos --model model.ckpt", ("photos/a.png", "photos/b.png")
IMPORT_SGRVINOD = (
    "import sgrvinod decoder.pth --word-map map.json --encoder encoder.yaml --encoder-weights encoder.pth"
)
IMPORT_ARCTIC = (
    "import arctic model.npz --options options.json --vocabulary words.txt --encoder encoder.yaml "
    "--encoder-weights encoder.pth"
)
ATTACKS = [
    Attack("describe", "--heatmap", DESCRIBE, "out.png", MODEL),
    Attack("describe", "--heatmap", DESCRIBE_FOLDER, "out", PHOTOS, is_slow=True),
    Attack("describe", "--matrix", DESCRIBE, "out.png", MODEL),
    Attack("describe", "--contact-sheet", DESCRIBE, "out.png", MODEL),
    Attack("describe", "--html", DESCRIBE, "out.html", MODEL),
    Attack("describe", "--attention", DESCRIBE, "out.npz", MODEL),
    Attack("describe", "--out", "describe --engine ray photo.png --model model.ckpt", "out", MODEL),
    Attack("demo", "--out", "demo", "out", is_slow=True),
    Attack("features", "--out", FEATURES, "out", ("fit.yaml", "run/best.ckpt")),
    Attack("shards", "--out", "shards -c fit.yaml --samples 3", "out", ("fit.yaml",)),
    Attack(
        "check", "--write", "check captions.json --images photos --base fit.yaml --min-count 1", "out.yaml",
        ("captions.json", "fit.yaml", "photos/a.png"),
    ),
    Attack("import arctic", "--out", IMPORT_ARCTIC, "out.ckpt", ("model.npz", "options.json", "words.txt")),
    Attack("import sgrvinod", "--out", IMPORT_SGRVINOD, "out.ckpt", ("decoder.pth", "map.json", "encoder.pth")),
    Attack("export", "--out", "export model.ckpt --format onnx", "out", ("model.ckpt",), is_slow=True),
    Attack("export", "--out", "export model.ckpt --format ckpt", "out.ckpt", ("model.ckpt",)),
    Attack("export", "--out", "export model.ckpt --format safetensors", "out.safetensors", ("model.ckpt",)),
    Attack("compare", "--curves", "compare run", "out.png", ("run/best.ckpt",)),
    Attack("analyse", "--out", "analyse --limit 2 --model mine=shapes", "out.html", (), ("out.json",)),
    Attack("fit", ROOT_DIR, FIT, "out", ("fit.yaml",), is_slow=True),
    Attack("fit", "--data.reader", f"{FIT} {ROOT_DIR} new_run", "out", ("fit.yaml",), ("new_run",), is_slow=True),
    Attack("test", ROOT_DIR, f"test {EVALUATE} {NO_LOGGER}", "out", ("fit.yaml", "run/best.ckpt"), is_slow=True),
    Attack("predict", ROOT_DIR, f"predict {EVALUATE} {NO_LOGGER}", "out", ("fit.yaml", "run/best.ckpt"), is_slow=True),
]  # fmt: skip

READ = """
images --model --compare --list model state -c --config --ckpt_path data --data --base --images --splits
--encoder --encoder-weights --options --vocabulary --word-map --references --candidates --model.warm_start
--data.features --data.shards --boxes --captions --photos --scores name words runs models address
"""
VALUES = """
--trust --device --question --dtype --host --cmap --map --maps --words --metrics --protocol --split --tokenizer
--report --names --print_config --metric --license --measures --checkpoint.mode --checkpoint.monitor
--early_stopping.mode --early_stopping.monitor --last_checkpoint.every
--data.tokenizer --trainer.accelerator --trainer.devices+ --trainer.gradient_clip_algorithm --trainer.max_time
--trainer.model_registry --trainer.strategy --trainer.val_check_interval --trainer.plugins+
"""
GROUPS = """
--attention_figures --attention_temperature --checkpoint --early_stopping --epoch_report --last_checkpoint
--lr_scheduler --model --trainer --data.flip --data.transform --data.vocabulary --model.decoder --model.encoder
--model.objective --model.refiner --model.scheduler --model.search --model.validation_search
"""
NOT_OUTPUTS = {*READ.split(), *VALUES.split(), *GROUPS.split()}
"""Options whose value names no output: what is read; names and values; groups, and classes that write nothing."""
LIGHTNINGS_VERBS = ("fit", "validate", "test", "predict")
NOT_ATTACKED = {
    f"validate {ROOT_DIR}": "as test",
    "lens --out": "needs an encoder with a classifier: tests/cli/test_cli_lens.py",
    "lens --figure": "as lens --out",
    **{f"{verb} --data.reader": "as fit" for verb in LIGHTNINGS_VERBS[1:]},
    **{
        f"{verb} --checkpoint.filename": "names in the folder of the run, which is attacked"
        for verb in LIGHTNINGS_VERBS
    },
    **{
        f"{verb} --trainer.{name}": "Lightning's class, which the user configures; what it does by default is attacked"
        for verb in LIGHTNINGS_VERBS
        for name in ("logger+", "callbacks+", "profiler")
    },
}
"""Output options that are not tried, with the reason."""


def test_every_option_is_known():
    attacked = {f"{attack.command} {attack.option}" for attack in ATTACKS}
    found = {
        f"{command} {option}"
        for command, parser in sandbox.parsers().items()
        for option in text_options(parser) - NOT_OUTPUTS
    }
    assert found - attacked - set(NOT_ATTACKED) == set(), "is it an output? see ATTACKS"
    assert (attacked | set(NOT_ATTACKED)) - found == set(), "these are no longer options"


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


def obstacles(attack: Attack, products: Sequence[str]) -> Iterator[tuple[str, Obstacle]]:
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
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_nothing_is_lost(attack: Attack, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
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
        before, own = sandbox.snapshot(top), sandbox.own_files(top)
        ran = sandbox.run([*command, value])
        monkeypatch.chdir(tmp_path)
        inputs = [f"here/{name}" for name in attack.inputs]
        found = sandbox.harm(top, before, own, ran, allowed(here / value, ran), inputs)
        if ran.code == 2 and ran.loaded and attack.command in EARLY:
            found.append(f"LATE: a model was loaded before the refusal {ran.err.strip()[-200:]}")
        return found

    def allowed(place: Path, ran: sandbox.Run) -> list[Path]:
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
    known = set(sandbox.snapshot(top))
    ran = sandbox.run([*command, attack.fresh])
    assert ran.code == 0, ran.err
    place = f"here/{attack.fresh}/"
    new = sorted(set(sandbox.snapshot(top)) - known)
    files = [name.removeprefix(place) for name in new if name.startswith(place) and (top / name).is_file()]
    # Without those that are named by the time.
    products = [name for name in files if ".caption" not in name and "events.out" not in name]
    assert products or not attack.is_folder
    if sandbox.own_files(top) & {f"here/{attack.fresh}"}:  # and not a file that is never replaced
        (here / attack.fresh).write_bytes((here / attack.fresh).read_bytes() + b"edited")
        assert sandbox.run([*command, attack.fresh]).code == 0
        assert not (here / attack.fresh).read_bytes().endswith(b"edited")
    monkeypatch.chdir(tmp_path)
    found = [
        f"{label}: {'; '.join(faults[:2]):.500} ({len(faults)})"
        for label, setup in obstacles(attack, products)
        if (faults := attempt(setup))
    ]
    if found:
        pytest.fail("\n".join([f"{attack.name}: {len(found)} losses", *found]), pytrace=False)
