"""Hostile files: a small budget of the fuzzer, and whether the fuzzer itself notices what is wrong."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tools.fuzz import targets
from tools.fuzz.__main__ import MEMORY, attack, run, table
from tools.fuzz.inputs import NUMBERS, TOKENS, images, mutated

BUDGET = {
    "images": 120,
    "photos": 4,
    "json": 12,
    "jsonl": 8,
    "csv": 12,
    "yaml": 12,
    "checkpoints": 12,
    "stores": 25,
}


@pytest.mark.parametrize("kind", targets.TARGETS)
@pytest.mark.filterwarnings("ignore")
def test_mutated_files_are_answered_or_refused(kind: str, tmp_path: Path) -> None:
    seconds = 0.0
    for number in range(BUDGET[kind]):
        result = attack(kind, 1, number, tmp_path)
        assert result.reason == "", number
        seconds = max(seconds, result.seconds)
    assert seconds < 20
    assert all(path.name == "sound.ckpt" for path in tmp_path.iterdir())


def test_inputs_are_those_of_their_seed_and_differ() -> None:
    found = {mutated(b"some text" * 20, random.Random(seed), TOKENS) for seed in range(50)}
    assert len(found) > 40
    assert mutated(b"some text", random.Random(3), NUMBERS) == mutated(
        b"some text", random.Random(3), NUMBERS
    )
    assert len({image.suffix for image in images()}) > 20


def hang(random: random.Random, folder: Path) -> bool:
    time.sleep(60)
    return True


def die(random: random.Random, folder: Path) -> bool:
    os._exit(3)


def swell(random: random.Random, folder: Path) -> bool:
    return len(bytearray(b"x") * (MEMORY + (1 << 20))) > 0


def raise_(random: random.Random, folder: Path) -> bool:
    raise KeyError("x")


@pytest.mark.skipif(os.name == "nt", reason="processes that share the planted fault")
@pytest.mark.parametrize(
    ("fault", "reason"),
    [(hang, "no answer within 0.2 s"), (die, "died, exit code 3"), (raise_, "KeyError")],
)
def test_hangs_deaths_and_exceptions_are_failures(monkeypatch, tmp_path, fault, reason: str) -> None:
    monkeypatch.setattr("multiprocessing.Process", __import__("multiprocessing").get_context("fork").Process)
    monkeypatch.setitem(targets.TARGETS, "planted", fault)
    tally = run("planted", 0, 0.3, tmp_path, limit=0.2 if fault is hang else 60)
    assert tally.tried >= 1
    assert len(tally.failures) == tally.tried
    assert reason in tally.failures[0]
    assert f"| planted | {tally.tried:,} | 0 | 0 | {tally.tried:,} |" in table([tally])


def test_growing_memory_is_a_failure(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("tools.fuzz.__main__.MEMORY", 1 << 24)
    monkeypatch.setitem(targets.TARGETS, "planted", lambda random, folder: bool(bytearray(b"x") * (1 << 28)))
    assert "memory grew by" in attack("planted", 0, 0, tmp_path).reason


@pytest.mark.parametrize(
    ("out", "reason"),
    [
        ("print('x', file=sys.stderr)", "not the command's"),
        ("raise RuntimeError", "internal error"),
    ],
)
def test_what_a_command_must_not_print(monkeypatch, out: str, reason: str) -> None:
    from types import SimpleNamespace

    from caption.cli import main as command_line

    def act(args: list[str]) -> int:
        exec(f"import sys\n{out}")
        return 0

    monkeypatch.setattr(command_line, "import_module", lambda name: SimpleNamespace(main=act))
    with pytest.raises(targets.Failure, match=reason):
        targets._command("score")


def test_words_that_disappear_are_a_failure(tmp_path, monkeypatch) -> None:
    from caption.metrics.files import CaptionFile

    (tmp_path / "a.csv").write_text("image,caption\na.jpg,the tiger sleeps\n")
    monkeypatch.setattr(targets, "read_captions", lambda path: CaptionFile(path, {"a.jpg": ["the tiger"]}))
    with pytest.raises(targets.Failure, match=r"words disappeared: \['sleeps'\]"):
        targets._check_words(tmp_path / "a.csv")
