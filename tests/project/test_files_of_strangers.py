"""Files of others, with every value exchanged for hostile ones: they decide what the model is, and nothing else.

In each case a folder beside is not opened, no process is started, nothing is written elsewhere, no module of the
working directory is imported, and the command answers or refuses in a sentence. `STRANGERS=5000` runs that many cases
of each kind, drawn by a fixed seed; the suite runs few.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command_line import QUIET, Ran, Trained
from helpers.confined import confined
from helpers.tiny_captioner import captioner, photo

from caption.core.errors import UserError
from caption.data.photos import ImageTransform
from caption.data.readers import JsonLines
from caption.data.shards import ShardBatches, ShardIndex, ShardLoader, TrainingShards
from caption.data.shards.writing import write_shards
from caption.models import checkpoint

pytestmark = pytest.mark.nightly
NOTHING = ("--data.reader.init_args.train=-1",)  # so that no data is made
EPOCHS = ("--trainer.max_epochs", 3)
CASES = int(os.environ.get("STRANGERS", "0"))
Cli = Callable[..., Ran]
Path_ = tuple[Any, ...]
MODULES = {"hostile_module", "tensorflow", "tabulate", "s3fs"}


@pytest.fixture
def victim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that nobody may touch, with files like those of readers, runs and stores; modules in the working one."""
    folder = tmp_path / "victim"
    (folder / "images").mkdir(parents=True)
    for name in ("images/test_009999.png", "best.ckpt", "train.json", "features-00000.safetensors", "x.tar"):
        (folder / name).write_bytes(b"mine")
    here = tmp_path / "here"
    here.mkdir()
    for name in MODULES:
        (here / f"{name}.py").write_text(f"open({str(folder / 'imported')!r}, 'w')")
    monkeypatch.chdir(here)
    return folder


def hostile(victim: Path) -> list[Any]:
    deep: list[Any] = []
    for _ in range(150):
        deep = [deep]
    parts = {
        "os.system": {"command": f"touch {victim}/run"},
        "hostile_module.X": {},
        "caption.__main__.X": {},
    }
    parts["caption.data.shapes.Shapes"] = {"folder": str(victim)}
    texts = [str(victim), f"{victim}/best.ckpt", f"{victim}/../victim", f"pipe:touch {victim}/run"]
    texts += [
        f"x; touch {victim}/y #",
        "os.system",
        "hostile_module.X",
        "caption.cli.main.main",
        "s3://bucket/x",
    ]
    texts += ["", "\x1b[2J\n\u202e\x00", "\ud800"]
    numbers = [-1, -15, 0, 5000, 2**40, 10**18, 10**30, 1e308, float("nan"), float("-inf"), True]
    others = [None, [], {}, deep, [1, "x"], {"a": 1}, {"class_path": "hostile_module.X"}]
    classes = [{"class_path": path, "init_args": arguments} for path, arguments in parts.items()]
    return [*classes, *texts, *numbers, *others]


def places(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The places of all values; of long lists, the first and last."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, (list, tuple)):
        for number in sorted({0, len(value) - 1} & {*range(len(value))}):
            yield from places(value[number], (*path, number))


def exchanged(contents: Any, path: Path_, value: Any) -> Any:
    changed = copy.deepcopy(contents)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    if isinstance(inner, tuple):  # of an optimizer's options
        return None
    inner[path[-1]] = value
    return changed


def cases(contents: Any, victim: Path, most: int) -> Iterator[tuple[str, Any]]:
    """Changed contents, each with a name: a sample of all places and values; 0 = all."""
    values = hostile(victim) + [torch.zeros(1).expand(10**9)] * isinstance(contents.get("state_dict"), dict)
    every = [(path, value) for path in places(contents) for value in values]
    for path, value in random.Random(0).sample(every, min(CASES or most, len(every))):
        if (changed := exchanged(contents, path, value)) is not None:
            yield f"{path} = {ascii(value)[:80]}", changed


def check_all(
    contents: Any, victim: Path, most: int, write: Callable[[Any], None], run: Callable[[], Ran | None]
) -> None:
    """Run each case, and name those that did more than they may."""
    write(contents)
    run()  # imports whatever is needed
    faults = []
    for name, changed in cases(contents, victim, most):
        write(changed)
        loaded, ran = set(sys.modules), None
        try:
            with warnings.catch_warnings(), confined(victim.parent, secret=victim):
                warnings.simplefilter("ignore")
                ran = run()
        except AssertionError as error:
            faults.append(f"{name}: {error}")
        faults += [f"{name}: {module}" for module in MODULES & (set(sys.modules) - loaded)]
        if ran and (ran.code not in (0, 1, 2) or re.search("internal error|\x1b|\u202e", ran.out + ran.err)):
            faults.append(f"{name}: {ran.code}: {ran.err[-500:]}")
    assert not faults, f"{len(faults)} cases:\n" + "\n".join(faults[:30])


def test_a_model(cli: Cli, victim: Path, tmp_path: Path):
    photo().save(tmp_path / "photo.png")
    checkpoint.save(captioner(), tmp_path / "model.ckpt")
    contents = torch.load(tmp_path / "model.ckpt", weights_only=True)
    path = tmp_path / "hostile.ckpt"
    describe = ("describe", tmp_path / "photo.png", "--model", path)
    check_all(contents, victim, 60, lambda changed: torch.save(changed, path), lambda: cli(*describe))


@pytest.mark.parametrize("verb", ["fit", "test", "validate", "predict"])
def test_a_run(verb: str, cli: Cli, trained: Trained, victim: Path, tmp_path: Path):
    contents = torch.load(trained.folder / "last.ckpt", weights_only=True)
    run = tmp_path / "run"
    where = ("--trainer.default_root_dir", run, "--ckpt_path", run / "last.ckpt")
    options = ("-c", trained.config, *QUIET, *where, *(EPOCHS if verb == "fit" else ()))

    def write(changed: Any) -> None:
        shutil.rmtree(run, ignore_errors=True)
        run.mkdir()
        shutil.copy(trained.folder / "best.ckpt", run)
        torch.save(changed, run / "last.ckpt")

    check_all(contents, victim, 2, write, lambda: cli(verb, *options))


def test_a_run_by_its_checkpoint_alone(cli: Cli, trained: Trained, victim: Path, tmp_path: Path):
    contents = torch.load(trained.folder / "last.ckpt", weights_only=True)
    data = {"data": contents["data"], "hyper_parameters": contents["hyper_parameters"]}
    path = tmp_path / "hostile.ckpt"
    test = ("test", *QUIET, "--data.reader", "caption.data.shapes.Shapes", *NOTHING, "--ckpt_path", path)
    check_all(data, victim, 10, lambda changed: torch.save(contents | changed, path), lambda: cli(*test))


def test_a_list_of_shards(victim: Path, tmp_path: Path):
    splits = ("train", "train", "train", "val")
    for number in range(4):
        photo(seed=number).save(tmp_path / f"{number}.png")
    entries = [{"image": f"{n}.png", "caption": "a cat", "split": split} for n, split in enumerate(splits)]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, entries)))
    write_shards(JsonLines(str(tmp_path / "captions.jsonl")).read(), tmp_path / "shards", 2)
    index = json.loads((tmp_path / "shards" / "shards.json").read_text())

    def read() -> None:
        with contextlib.suppress(UserError):
            found = ShardIndex.read(str(tmp_path / "shards"))
            source = TrainingShards(str(tmp_path / "shards"), max_damaged=0.5)
            options = {"captions_per_image": None, "max_words": None, "batch_size": 2, "seed": 0, "processes": 1,
                       "rank": 0, "workers": 1}  # fmt: skip
            batches = ShardBatches(found, source, found.vocabulary(1, "ptb"), ImageTransform(32), **options)
            for _ in ShardLoader(batches):
                pass

    path = tmp_path / "shards" / "shards.json"
    check_all(index, victim, 150, lambda changed: path.write_text(json.dumps(changed)), read)
