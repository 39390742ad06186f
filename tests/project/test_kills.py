"""Commands killed at random moments and given again: nothing of the user's is lost, nothing is left over, the result is
whole.

Each trial forks this process, in which everything is imported, and sends a signal after a random part of the time that
the command takes; up to three times, then the command may end. By hand, with 50 trials for each command:

    CAPTION_KILLS=50 python -m pytest -q -n0 tests/project/test_kills.py

Signals that ask a command to stop also come where they harm most: when a file is complete, before it has its name.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import user_files as sandbox
from helpers.command_line import default_signals
from helpers.user_files import EVALUATE, FEATURES, FIT, ROOT_DIR

from caption.cli import score
from caption.core.runtime import atomic_files
from caption.models import checkpoint

pytestmark = [pytest.mark.nightly, pytest.mark.usefixtures("tiny_commands")]
TRIALS = int(os.environ.get("CAPTION_KILLS", "1"))
QUIETLY = sandbox.Run(0, "", "", False)
SENT = (signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
TEMPORARY = re.compile(r"\.[^/]+\.[0-9a-f]{16}$|\.partial$|\.tmp$")
FOREIGN = ("mine.txt", "images/mine.png", "test_999999.png")
"""The user's files in the folder of the output, from the beginning."""
LATER = ("logs/mine.csv", "heatmaps/test_mine.png", "shapes/images/test_999999.png")
"""His files in folders that the command has made, if it has, after the first kill."""


COMMANDS = [
    "demo --out out",
    "shards -c fit.yaml --samples 3 --out out",
    f"{FEATURES} --batch-size 1 --out out",
    "describe photos --model model.ckpt --html page.html --heatmap out --attention out --format json",
    f"{FIT} {ROOT_DIR} out --ckpt_path auto",
    "export model.ckpt --format onnx --out out",
]


def start(args: list[str], here: Path, output: Path, begin: Callable[[], None] = lambda: None) -> int:
    """A process with the command, which calls `begin` first; returns its id."""
    for path in (output, output.with_suffix(".err")):  # a kill may come before the child opens them
        path.write_bytes(b"")
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.chdir(here)
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        default_signals()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        from caption.cli.main import main

        begin()
        code = main(args)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def finish(child: int) -> int:
    """The exit code, negative for a signal; a process that does not end is killed."""
    timer = threading.Timer(240, os.kill, (child, signal.SIGKILL))
    timer.start()
    _, status = os.waitpid(child, 0)
    timer.cancel()
    timer.join()
    return os.waitstatus_to_exitcode(status)


def stable(folder: Path) -> set[str]:
    """The files of an output, without those whose number depends on the number of starts."""
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    names = {re.sub(r"features-\d+", "features", name) for name in names}  # a stopped one is shorter
    return {name for name in names if not re.search(r"version_\d+/|events\.out|\.caption", name)}


def with_foreign_files(source: Path, top: Path, command: str) -> Path:
    """A new copy of the user's files, some of them where the output will be."""
    shutil.rmtree(top, ignore_errors=True)
    shutil.copytree(source, top, symlinks=True)
    for name in FOREIGN if not command.startswith("export") else ():
        path = top / "here" / "out" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("the user's own")
    return top / "here"


@pytest.mark.timeout(0 if TRIALS > 1 else 600)
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.partition(" ")[0])
def test_killed_and_given_again(command: str, template: Path, tmp_path: Path):
    args, top = command.split(), tmp_path / "user"
    here = with_foreign_files(template, top, command)
    begun = time.monotonic()
    assert finish(start(args, here, tmp_path / "whole.txt")) == 0, (tmp_path / "whole.err").read_text()
    seconds, whole = time.monotonic() - begun, stable(here / "out")
    chance = random.Random(command)
    found: list[str] = []
    for trial in range(TRIALS):
        with_foreign_files(template, top, command)
        before, own = sandbox.snapshot(top), sandbox.own_files(top)
        sent: list[tuple[str, int]] = []
        faults: list[str] = []
        for _ in range(chance.randint(1, 3) if TRIALS > 1 else 1):
            child = start(args, here, tmp_path / "killed.txt")
            time.sleep(chance.uniform(0, 1.05) * seconds)
            number = chance.choice(SENT)
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, number)
            sent.append((number.name, finish(child)))
            for name in LATER:
                path = here / "out" / name
                if path.parent.is_dir() and not path.exists():
                    path.write_text("the user's own")
                    key = str(path.relative_to(top))
                    before[key] = sandbox.snapshot(top)[key]
            said, error = (tmp_path / "killed.txt").read_text(), (tmp_path / "killed.err").read_text()
            if sent[-1][1] not in (0, -9, 130, 143, -15, -2) or re.search("Traceback|internal error", error):
                faults.append(error[-300:])
            if args[0] == "describe" and number != signal.SIGKILL and said:
                json.loads(said)  # which is not cut short
        if (code := finish(start(args, here, tmp_path / "last.txt"))) != 0:
            faults.append(f"ends with {code}: {(tmp_path / 'last.err').read_text()[-300:]}")
        incomplete = [name for name in sandbox.snapshot(top) if TEMPORARY.search(name)]
        if not any(name == "SIGKILL" for name, _ in sent):  # which leaves the file that was being written
            faults += [f"leaves {name}" for name in incomplete]
        allowed = [here / "out", here / "page.html", *(top / name for name in incomplete)]
        faults += sandbox.harm(top, before, own, QUIETLY, allowed, [])
        # A run whose last epoch was saved as the best one before it was killed has nothing left to train.
        faults += [f"lacks {name}" for name in whole - stable(here / "out") - {"last.ckpt"}]
        new = stable(here / "out") - whole - {*LATER}
        faults += [f"also has {name}" for name in new if not TEMPORARY.search(name)]
        found += [f"trial {trial} {sent}: {fault}" for fault in faults]
    if found:
        pytest.fail("\n".join(found), pytrace=False)


STOPPED = {
    f"{FEATURES} --batch-size 1 --out out": "features-00000.safetensors",
    "shards -c fit.yaml --samples 3 --out out": "shards.json",
    "analyse --limit 2 --model mine=shapes --out out/report.html": "report.json",
    f"predict {EVALUATE} {ROOT_DIR} out": "predictions.json",
    f"{FIT} {ROOT_DIR} out": "best.ckpt",
    "score --references captions.json --candidates captions.json": "",
}
"""Commands, and the file at which they are stopped."""


@pytest.mark.parametrize("command", STOPPED, ids=lambda command: command.partition(" ")[0])
def test_stopped_when_a_file_is_complete(command: str, template: Path, tmp_path: Path):
    top = Path(shutil.copytree(template, tmp_path / "user", symlinks=True))
    here, name = top / "here", STOPPED[command]
    whole = tmp_path / "whole"
    shutil.copytree(here, whole, symlinks=True)
    args = command.split()
    assert finish(start(args, whole, tmp_path / "whole.txt")) == 0, (tmp_path / "whole.err").read_text()
    before, own = sandbox.snapshot(top), sandbox.own_files(top)

    def begin() -> None:
        """Send the signal once, when the file is complete, or the captions are to be read."""
        number = iter([signal.SIGTERM])
        rename, read = atomic_files._rename, score.read_captions

        def stopped_rename(temporary: Path, path: Path, may_replace: Any) -> None:
            if path.name == name and (due := next(number, None)):
                os.kill(os.getpid(), due)
            rename(temporary, path, may_replace)

        def stopped_read(*args: Any) -> Any:
            os.kill(os.getpid(), signal.SIGTERM)
            return read(*args)

        atomic_files._rename, score.read_captions = stopped_rename, stopped_read

    code = finish(start(args, here, tmp_path / "out.txt", begin))
    error = (tmp_path / "out.err").read_text()
    assert code == 128 + signal.SIGTERM, error
    assert len(re.findall("^caption: ", error, re.MULTILINE)) == 1, error
    assert "Traceback" not in error
    assert (tmp_path / "out.txt").read_text() in ("", (tmp_path / "whole.txt").read_text())
    assert not [each for each in sandbox.snapshot(top) if TEMPORARY.search(each)]
    assert not sandbox.harm(top, before, own, QUIETLY, [here / "out"], [])
    for path in (here / "out").rglob("*"):
        if path.suffix in (".jpg", ".safetensors", ".txt", ".md", ".png", ".json"):
            assert path.read_bytes() == (whole / path.relative_to(here)).read_bytes(), path
        elif path.suffix == ".ckpt":
            checkpoint.read(path)
