"""Attack the package with mutated files, for a stated time, and report what was neither answered nor refused.

Every kind of input is attacked by a process of its own. One that takes longer than `SECONDS` for an input, or dies, is
replaced, and the input counts as a failure; so does one for which memory grows by more than `MEMORY`. Input number N of
a seed is the same in every run, and failures are kept as files.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

SECONDS = 60.0
"""For one input."""
MEMORY = 2 << 30
"""Bytes by which memory may grow for one input."""


class Result(NamedTuple):
    """One attack."""

    answered: bool
    reason: str
    """Why it is a failure; blank if it is none."""
    seconds: float
    memory: int
    """Bytes by which the peak of memory was above the memory before."""


@dataclass
class Tally:
    """All attacks with one kind of input."""

    kind: str
    tried: int = 0
    answered: int = 0
    slowest: float = 0.0
    largest: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    """Reasons by number of the input."""

    def add(self, number: int, result: Result) -> None:
        """Count one attack."""
        self.tried += 1
        self.answered += result.answered
        self.slowest, self.largest = max(self.slowest, result.seconds), max(self.largest, result.memory)
        if result.reason:
            self.failures[number] = result.reason


def attack(kind: str, seed: int, number: int, folder: Path) -> Result:
    """Make input `number` of a kind in a folder that is made for it, and attack with it, in this process."""
    from tools.fuzz.targets import TARGETS, Failure

    place = folder / f"{kind}-{seed}-{number}"
    place.mkdir()
    before, started = _memory("VmRSS"), time.monotonic()
    _forget_peak()
    answered, reason = False, ""
    try:
        answered = TARGETS[kind](random.Random(f"{kind} {seed} {number}"), place)
    except Failure as failure:
        reason = str(failure)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:600]
    seconds, memory = time.monotonic() - started, max(0, _memory("VmHWM") - before)
    if not reason and memory > MEMORY:
        reason = f"memory grew by {memory / 2**20:,.0f} MiB"
    if not reason:
        for path in place.iterdir():
            path.unlink()
        place.rmdir()
    return Result(answered, reason, seconds, memory)


def _memory(entry: str) -> int:
    """VmRSS, the memory of this process in bytes, or VmHWM, its peak; 0 where Linux's files are missing."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(entry))
    except (OSError, StopIteration):
        return 0


def _forget_peak() -> None:
    with suppress(OSError):  # then the peak is that of the whole process
        Path("/proc/self/clear_refs").write_text("5")


def _serve(kind: str, seed: int, folder: Path, pipe: Connection) -> None:
    """In its own process: attack with the inputs whose numbers arrive."""
    warnings.simplefilter("ignore")  # the command hides those of Pillow; here they would hide the report
    while True:
        pipe.send(attack(kind, seed, pipe.recv(), folder))


class Process:
    """A process that attacks; it is replaced when it hangs or dies."""

    def __init__(self, kind: str, seed: int, folder: Path, limit: float = SECONDS) -> None:
        self.arguments, self.limit = (kind, seed, folder), limit
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=_serve, args=(*self.arguments, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def attack(self, number: int) -> Result:
        """Attack with one input."""
        started = time.monotonic()
        self.pipe.send(number)
        try:
            if self.pipe.poll(self.limit):
                return self.pipe.recv()
            reason = f"no answer within {self.limit:g} s"
        except EOFError:
            self.process.join()
            reason = f"the process died, exit code {self.process.exitcode}"
        self.close()
        self._start()
        return Result(False, reason, time.monotonic() - started, 0)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run(kind: str, seed: int, seconds: float, folder: Path, limit: float = SECONDS) -> Tally:
    """Attack with one kind of input for some seconds, beginning with input 0."""
    tally = Tally(kind)
    end = time.monotonic() + seconds
    process = Process(kind, seed, folder, limit)
    try:
        while not tally.tried or time.monotonic() < end:
            tally.add(tally.tried, process.attack(tally.tried))
    finally:
        process.close()
    return tally


def table(tallies: Sequence[Tally]) -> str:
    """A table in Markdown."""
    rows = [
        "| input | tried | answered | refused | failures | slowest | most memory |",
        "|---|" + "---:|" * 6,
    ]
    for each in tallies:
        refused = each.tried - each.answered - len(each.failures)
        rows.append(
            f"| {each.kind} | {each.tried:,} | {each.answered:,} | {refused:,} | {len(each.failures):,} | "
            f"{each.slowest:.1f} s | {each.largest / 2**20:,.0f} MiB |"
        )
    return "\n".join(rows)


def main(args: Sequence[str] | None = None) -> int:
    """Run the attacks; exit code 1 if any failed."""
    from tools.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser("python -m tools.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"among {', '.join(TARGETS)}; default all")
    parser.add_argument("--seconds", type=float, default=60, help="for each kind; default 60")
    parser.add_argument("--seed", type=int, default=0, help="default 0")
    parser.add_argument("--out", type=Path, help="where failing inputs are kept; default a new folder")
    options = parser.parse_args(args)
    if unknown := set(options.kinds) - set(TARGETS):
        parser.error(f"there is no kind {', '.join(sorted(unknown))}")
    folder = options.out or Path(tempfile.mkdtemp(prefix="fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    tallies = []
    for kind in options.kinds or TARGETS:
        tallies.append(run(kind, options.seed, options.seconds, folder))
        for number, reason in tallies[-1].failures.items():
            print(f"{folder / f'{kind}-{options.seed}-{number}'}: {reason}", file=sys.stderr)
    print(table(tallies))
    return int(any(each.failures for each in tallies))


if __name__ == "__main__":
    sys.exit(main())
