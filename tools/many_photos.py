"""Memory of `caption describe` while it captions a folder of many photos: it should not grow with their number.

    python -m tools.many_photos [--photos 10000] [--size 96] [--model shapes]

The photos are generated scenes, all different. Memory is the resident set of the command, read from Linux's /proc when
each tenth of the photos is captioned.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from caption.data.shapes.render import render
from caption.data.shapes.scene import random_scene


def make_photos(folder: Path, count: int, size: int) -> None:
    """JPEGs of Shapes scenes, `size` pixels wide and high."""
    for number in range(count):
        render(random_scene(0, "train", number, 96)).resize((size, size)).save(folder / f"{number:06}.jpg")


def resident(process: int, entry: str = "VmRSS") -> float:
    """Memory of a process in MiB: VmRSS, or its peak VmHWM."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(entry))


def measure(folder: Path, count: int, model: str) -> list[tuple[int, float, float]]:
    """(photos captioned, seconds since the start, MiB) after each tenth of the photos.

    Raises:
        RuntimeError: a photo was not captioned, or captioned twice or out of order.
    """
    command = [
        sys.executable,
        "-m",
        "caption",
        "describe",
        str(folder),
        "--model",
        model,
        "--format",
        "jsonl",
    ]
    started = time.monotonic()
    rows = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as running:
        assert running.stdout is not None
        done = 0
        for line in running.stdout:
            if Path(json.loads(line)["image"]).stem != f"{done:06}":
                raise RuntimeError(f"photo {done} is missing")
            done += 1
            if done % max(1, count // 10) == 0:
                rows.append((done, time.monotonic() - started, resident(running.pid)))
    if done != count or running.returncode:
        raise RuntimeError(f"{done} of {count} photos were captioned, exit code {running.returncode}")
    return rows


def main(args: Sequence[str] | None = None) -> int:
    """Generate the photos, caption them, and print a table."""
    parser = argparse.ArgumentParser(
        "python -m tools.many_photos", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--photos", type=int, default=10_000, help="default 10000")
    parser.add_argument("--size", type=int, default=96, help="pixels of a side; default 96")
    parser.add_argument("--model", default="shapes", help="checkpoint or installed model; default shapes")
    options = parser.parse_args(args)
    with tempfile.TemporaryDirectory() as folder:
        make_photos(Path(folder), options.photos, options.size)
        rows = measure(Path(folder), options.photos, options.model)
    print("| photos | seconds | memory |\n|---:|---:|---:|")
    for done, seconds, memory in rows:
        print(f"| {done:,} | {seconds:.0f} | {memory:,.0f} MiB |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
