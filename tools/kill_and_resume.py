"""Stop real trainings at random moments, resume them, and compare all weights with a run that was never stopped.

    python -m tools.kill_and_resume [--kills 20] [--workers 0 2] [--attention soft hard]

Trains on a small Shapes (100 scenes, 3 epochs of 10 batches). A trial starts the training in a process of its own,
waits for a random time, stops it in one of four ways, runs `caption fit --ckpt_path auto` to the end, and compares
last.ckpt (weights, optimizer, schedulers, early stopping) and best.ckpt bit for bit. The ways are SIGKILL, SIGTERM
and Ctrl-C, and a limit on the size of files, which makes the next checkpoint fail as on a full disk. SIGTERM and
Ctrl-C go to the workers, too, as from a scheduler or a terminal. Exits with 1 if a run ended with other bits.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from tools import make_parser
from tools.documents import table, write_sections

ROOT = Path(__file__).resolve().parents[1]
WAYS = {"SIGKILL": (-9,), "SIGTERM": (143, -15), "Ctrl-C": (130,), "full disk": (1, 2)}
"""How a training is stopped, and its exit codes then. SIGTERM kills a process that has not yet begun; a full disk may
first be noticed by a log."""
FILE_LIMIT = 100_000
"""Bytes of a file on a "full" disk: less than a checkpoint, more than the logs."""


@dataclass
class Outcome:
    """What became of the trials of one kind of training."""

    stopped: Counter[str] = field(default_factory=Counter)
    steps: list[int] = field(default_factory=list)
    """The step of the checkpoint from which each was resumed; 0 if there was none."""
    differing: list[str] = field(default_factory=list)


def main(args: list[str] | None = None) -> int:
    parser = make_parser("kill_and_resume", __doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each kind of training; default 20")
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--attention", choices=("soft", "hard"), nargs="+", default=["soft", "hard"])
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/kill_and_resume"), help="folder, emptied first"
    )
    parser.add_argument("--document", type=Path, help="file with a section kill_and_resume for the table")
    options = parser.parse_args(args)
    shutil.rmtree(options.out, ignore_errors=True)
    options.out.mkdir(parents=True)
    kinds = [(attention, workers) for attention in options.attention for workers in options.workers]
    if "hard" in options.attention:
        Training("soft", 0, options.out).run(options.out / "soft")  # from which hard attention starts
    with ThreadPoolExecutor() as pool:
        outcomes = list(pool.map(lambda kind: trials(*kind, options), kinds))
    rows = []
    for (attention, workers), outcome in zip(kinds, outcomes, strict=True):
        ways = ", ".join(f"{count} {way}" for way, count in sorted(outcome.stopped.items()))
        same = f"{options.kills - len(outcome.differing)} of {options.kills}"
        steps = f"{min(outcome.steps)} to {max(outcome.steps)}, {len(set(outcome.steps))} different ones"
        rows.append([attention, str(workers), ways, steps, same])
    head = ["attention", "workers", "stopped by", "resumed from step (of 30)", "same bits at the end"]
    text, wrong = table(head, rows), [each for outcome in outcomes for each in outcome.differing]
    command = f"python -m tools.kill_and_resume --kills {options.kills} --seed {options.seed}"
    text = f"Written by `{command}`, torch {torch.__version__}, CPU.\n\n{text}"
    print(text)
    if options.document:
        write_sections(options.document, {"kill_and_resume": text})
    print("\n".join(wrong), file=sys.stderr)
    return 1 if wrong else 0


def trials(attention: str, workers: int, options: argparse.Namespace) -> Outcome:
    """Stop and resume one kind of training, `options.kills` times."""
    moments = random.Random(f"{options.seed} {attention} {workers}")
    training = Training(attention, workers, options.out)
    started = time.monotonic()
    training.run(training.folder)
    duration = time.monotonic() - started
    expected = state(training.folder)
    outcome = Outcome()
    while sum(outcome.stopped.values()) < options.kills:
        number = sum(outcome.stopped.values())
        way = list(WAYS)[number % len(WAYS)]
        folder = options.out / f"{attention}_{workers}_{number}"
        moment = moments.uniform(0, duration)
        if not training.stop(folder, way, moment):
            shutil.rmtree(folder)
            continue  # it ended before
        step = reached(folder)
        training.run(folder)
        different = [name for name, value in state(folder).items() if not equal(value, expected.get(name))]
        outcome.stopped[way] += 1
        outcome.steps.append(step)
        if different:
            outcome.differing.append(f"{folder}: {len(different)} entries differ, {different[:3]}")
        what = "same" if not different else "DIFFERENT"
        print(
            f"{attention}, {workers} workers: {way} after {moment:.1f} s, step {step}: {what}",
            file=sys.stderr,
        )
        shutil.rmtree(folder)
    return outcome


class Training:
    """One kind of training, run in processes of its own."""

    def __init__(self, attention: str, workers: int, out: Path) -> None:
        self.folder = out / f"{attention}_{workers}_whole"
        self.out = out
        self.options = [
            *("fit", "-c", str(ROOT / "configs" / f"shapes_{attention}.yaml")),
            *("--data.reader.init_args", '{"train": 100, "val": 20, "test": 1}', "--data.batch_size", "10"),
            *("--data.reader.init_args.folder", str(out / "shapes")),
            *("--data.workers", str(workers), "--trainer.max_epochs", "3", "--trainer.accelerator", "cpu"),
            *(
                "--last_checkpoint.every",
                "3 steps",
                "--ckpt_path",
                "auto",
                "--trainer.enable_progress_bar",
                "false",
            ),
        ]
        if attention == "hard":
            self.options += ["--model.warm_start", str(out / "soft" / "best.ckpt")]
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["caption.cli.train"])

    def start(self, folder: Path) -> BaseProcess:
        """Start it, or resume it where it was stopped."""
        arguments = [*self.options, "--trainer.default_root_dir", str(folder)]
        process = self.context.Process(target=command, args=(arguments, str(self.out / "log.txt")))
        process.start()
        return process

    def run(self, folder: Path) -> None:
        """Train to the end."""
        process = self.start(folder)
        process.join()
        if process.exitcode != 0:
            raise SystemExit(
                f"the training in {folder} exited with {process.exitcode}: see {self.out}/log.txt"
            )

    def stop(self, folder: Path, way: str, moment: float) -> bool:
        """Train, and stop after `moment` seconds; returns whether that was before the end."""
        process = self.start(folder)
        process.join(moment)
        assert process.pid is not None
        if process.exitcode is None:
            try:
                if way == "SIGKILL":
                    os.kill(process.pid, signal.SIGKILL)
                elif way == "full disk":
                    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (FILE_LIMIT, FILE_LIMIT))
                else:
                    os.killpg(process.pid, signal.SIGINT if way == "Ctrl-C" else signal.SIGTERM)
            except ProcessLookupError:  # it has ended, or has not yet made its group
                pass
        process.join()
        if process.exitcode not in (0, *WAYS[way]):
            raise SystemExit(f"{way} ended the training in {folder} with {process.exitcode}, not {WAYS[way]}")
        return process.exitcode != 0


def command(arguments: list[str], log: str) -> None:
    """The `caption` command, in a process group of its own like a job of a shell."""
    os.setpgrp()
    multiprocessing.set_start_method("fork", force=True)  # of workers, as in a process that a shell starts
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    from caption.cli.main import main

    sys.exit(main(arguments))


def reached(folder: Path) -> int:
    """The step of last.ckpt, or 0. The file always loads."""
    path = folder / "last.ckpt"
    return torch.load(path, weights_only=True)["global_step"] if path.exists() else 0


def state(folder: Path) -> dict[str, Any]:
    """All that has to be the same: of last.ckpt what training restores, of best.ckpt the weights; by name."""
    last, best = (torch.load(folder / f"{name}.ckpt", weights_only=True) for name in ("last", "best"))
    kept = {name: last[name] for name in ("state_dict", "optimizer_states", "lr_schedulers", "global_step")}
    early = [state for name, state in last["callbacks"].items() if name.startswith("EarlyStopping")]
    return dict(leaves({"last": kept, "early": early, "best": best["state_dict"]}))


def leaves(tree: Any, path: str = "") -> list[tuple[str, Any]]:
    """The values of nested dictionaries and lists, by path."""
    if isinstance(tree, dict):
        return [leaf for key, value in tree.items() for leaf in leaves(value, f"{path}/{key}")]
    if isinstance(tree, list | tuple):
        return [leaf for key, value in enumerate(tree) for leaf in leaves(value, f"{path}/{key}")]
    return [(path, tree)]


def equal(one: Any, other: Any) -> bool:
    """Bit for bit, and NaN is not equal to itself: no weight may be NaN."""
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


if __name__ == "__main__":
    sys.exit(main())
