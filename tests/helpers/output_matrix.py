"""Every output option of every command, from the parsers, and a folder of a user's files in which to try it.

`parsers` and `text_options` find the options; `make_template` makes the tiniest inputs of every command; `run` runs
one, and `harm` says what it has done to the user's files.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
import torch
import yaml
from helpers import tiny_captioner
from helpers.command_line import TINY
from helpers.configurations import verb_parsers
from helpers.models_of_others import write_models

# -- the options ---------------------------------------------------------------------------------------------------


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command, by its words: "import arctic", "fit"."""
    from caption.cli.configuration.arguments import verb_parser
    from caption.cli.main import VERBS

    found = dict(verb_parsers())
    for verb, (module, _) in VERBS.items():
        if verb not in found:
            found |= _nouns(verb, verb_parser(verb, importlib.import_module(f"caption.cli.{module}")))
    return found


def _nouns(command: str, parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    nouns = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nouns:
        return [(command, parser)]
    return [each for name, inner in nouns[0].choices.items() for each in _nouns(f"{command} {name}", inner)]


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


# -- the commands --------------------------------------------------------------------------------------------------


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
QUIET = "--trainer.enable_progress_bar=false --trainer.enable_model_summary=false"
FIT = f"fit -c fit.yaml {QUIET}"
EVALUATE = f"-c fit.yaml --ckpt_path run/best.ckpt {QUIET}"
NO_LOGGER = "--trainer.logger false"
ROOT_DIR = "--trainer.default_root_dir"
FEATURES = "features -c fit.yaml --model run/best.ckpt"
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
--data.features --data.shards --boxes --captions --photos name words runs models address
"""
VALUES = """
--trust --device --host --cmap --words --metrics --protocol --split --tokenizer --report --names --print_config
--measures --checkpoint.mode --checkpoint.monitor --early_stopping.mode --early_stopping.monitor --last_checkpoint.every
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


# -- a folder of a user's files ------------------------------------------------------------------------------------


def make_template(top: Path) -> None:
    """The user's files: `here`, in which commands run, and `elsewhere`."""
    from caption.data.shapes import write_shapes
    from caption.models import checkpoint

    here = top / "here"
    (here / "photos").mkdir(parents=True, exist_ok=True)
    (top / "elsewhere").mkdir()
    (top / "elsewhere" / "letter.txt").write_text("a letter")
    tiny_captioner.photo(32, 32).save(here / "photo.png")
    for number, name in enumerate("ab"):
        tiny_captioner.photo(32, 32, seed=number).save(here / "photos" / f"{name}.png")
    checkpoint.save(tiny_captioner.captioner(), here / "model.ckpt")
    write_shapes(here / "shapes", train=8, val=2, test=2, size=48)
    config = yaml.safe_load(TINY.format(folder=".", shapes="shapes"))
    config["data"]["reader"]["init_args"] |= {"train": 8, "val": 2, "test": 2}
    config["trainer"] |= {"max_epochs": 1, "limit_train_batches": 1, "default_root_dir": "run"}
    (here / "fit.yaml").write_text(yaml.safe_dump(config))
    lines = [
        '{"image": "a.png", "caption": "a cat", "split": "train"}',
        '{"image": "b.png", "caption": "a cat", "split": "val"}',
    ]
    (here / "captions.json").write_text("\n".join(lines))
    write_models(here)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        for args in (
            FIT,
            f"{FEATURES} --out store",
            "shards -c fit.yaml --samples 3 --out shards",
            f"test {EVALUATE}",
        ):
            ran = run(args.split())
            assert ran.code == 0, ran.err


class Entry(NamedTuple):
    """What is at a path; of folders, only that they are there."""

    kind: int
    mode: int
    time: int
    content: bytes | str | None


def snapshot(top: Path) -> dict[str, Entry]:
    """Everything below a folder, by its path there. Links are not followed."""
    found = {}
    for folder, folders, names in os.walk(top):
        for path in (Path(folder, name) for name in (*folders, *names)):
            status = path.lstat()
            kind, content, time = stat.S_IFMT(status.st_mode), None, 0
            if kind in (stat.S_IFLNK, stat.S_IFREG):
                content = os.readlink(path) if kind == stat.S_IFLNK else path.read_bytes()
                time = status.st_mtime_ns
            found[str(path.relative_to(top))] = Entry(kind, stat.S_IMODE(status.st_mode), time, content)
    return found


def own_files(top: Path) -> set[str]:
    """The files below a folder that this package wrote and may replace."""
    from caption.core.runtime.atomic_files import LOCK, MANIFEST, OwnFolder, is_own

    found: set[Path] = set()
    for folder, _, names in os.walk(top):
        if MANIFEST in names:
            found |= {Path(folder, name) for name in OwnFolder(Path(folder), "").names}
        found |= {path for name in names if is_own(path := Path(folder, name)) or name == LOCK}
    return {str(path.relative_to(top)) for path in found if path.is_file() and not path.is_symlink()}


# -- running -------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """What a command did."""

    code: int
    out: str
    err: str
    loaded: bool
    """Whether it read a model."""


def run(args: Sequence[str]) -> Run:
    """Run a command in this process."""
    from caption.cli.main import main

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape"), io.StringIO()
    precision = torch.get_float32_matmul_precision()
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(torch, "load", wraps=torch.load) as load,
        ):
            code = main(list(args))
    finally:
        torch.set_float32_matmul_precision(precision)
    out.seek(0)
    return Run(code, out.read(), err.getvalue(), load.called)


def harm(
    top: Path,
    before: Mapping[str, Entry],
    own: set[str],
    ran: Run,
    allowed: Sequence[Path],
    inputs: Sequence[str],
) -> list[str]:
    """What a command has done that it must not do."""
    after = snapshot(top)
    found = []
    for name, entry in before.items():
        now = after.get(name)
        if name in own and name not in inputs:
            if now is not None and now.mode != entry.mode:
                found.append(f"MODE of {name}: {entry.mode:o} -> {now.mode:o}")
        elif now is None:
            found.append(f"DELETED {name}")
        elif now != entry:
            found.append(f"CHANGED {name}: {entry!r:.80} -> {now!r:.80}")
    for name in after.keys() - before.keys():
        path = top / name
        if not any(path == place or place in path.parents for place in allowed):
            found.append(f"LITTER {name}")
    if ran.code not in (0, 1, 2) or re.search("Traceback|internal error", ran.out + ran.err):
        found.append(f"EXIT CODE {ran.code}: {ran.err.strip()[-400:]}")
    return found
