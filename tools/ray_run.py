"""Captioning on a local Ray against the plain command: the same captions, the rate, memory, and a killed worker.

    python -m tools.ray_run --photos 4000 --out /tmp/ray_run

Generates Shapes scenes, captions them with the installed model `shapes` in four ways, and prints a Markdown table.
Memory
is that of the largest actor after a quarter of the photos and at the end; rates include the start of processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from caption.data.shapes import write_shapes
from tools import make_parser
from tools.documents import table

MARK = "CAPTION_RAY_RUN"
"""An environment variable by which the processes of this run are known."""
POLL = 0.05


def main(args: list[str] | None = None) -> None:
    parser = make_parser("ray_run", __doc__)
    parser.add_argument("--photos", type=int, default=4000)
    parser.add_argument("--per-file", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    options = parser.parse_args(args)
    photos = options.out / "shapes" / "images"
    write_shapes(photos.parent, train=options.photos, val=0, test=0)
    os.environ[MARK] = uuid.uuid4().hex
    common = [sys.executable, "-m", "caption", "describe", str(photos), "--model", "shapes"]
    began = time.perf_counter()
    with (options.out / "plain.jsonl").open("wb") as file:
        subprocess.run([*common, "--format", "jsonl"], stdout=file, check=True)
    seconds = time.perf_counter() - began
    plain = captions([options.out / "plain.jsonl"])
    rows = [["`caption describe`", f"{len(plain) / seconds:.0f}", "", "", ""]]
    for name, actors, kills in (("one actor", 1, 0), ("two actors", 2, 0), ("two actors, one killed", 2, 1)):
        folder = options.out / name.replace(" ", "_").replace(",", "")
        ray = [
            "--engine",
            "ray",
            "--out",
            str(folder),
            "--actors",
            str(actors),
            "--per-file",
            str(options.per_file),
        ]
        began = time.perf_counter()
        process = subprocess.Popen([*common, *ray])
        early, late, killed = watched(process, folder, options.photos // options.per_file, kills)
        seconds = time.perf_counter() - began
        found = captions(sorted(folder.glob("captions-*.jsonl")))
        same = sum(found.get(photo) == text for photo, text in plain.items())
        assert killed == kills, "the run ended before a worker could be killed: give more --photos"
        rows.append(
            [
                name,
                f"{len(found) / seconds:.0f}",
                f"{early:.0f}",
                f"{late:.0f}",
                f"{same:,} of {len(plain):,}",
            ]
        )
    print(table(["", "photos/s", "MB, early", "MB, at the end", "same captions"], rows))


def watched(
    process: subprocess.Popen[bytes], folder: Path, files: int, kills: int
) -> tuple[float, float, int]:
    """Waits for a run: the memory of its largest actor early and last, and how many actors were killed."""
    early = late = 0.0
    killed = 0
    while process.poll() is None:
        done = len(list(folder.glob("captions-*")))
        actors = dict(running_actors())
        largest = max(actors.values(), default=0.0)
        if done <= files / 4:
            early = max(early, largest)
        late = largest or late
        if actors and killed < kills and done >= files / 3:
            os.kill(next(iter(actors)), signal.SIGKILL)
            killed += 1
        time.sleep(POLL)
    if process.returncode:
        raise SystemExit(f"the run ended with exit code {process.returncode}")
    return early, late, killed


def running_actors() -> Iterator[tuple[int, float]]:
    """Process id and resident memory in MB of the captioners that this run has started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            title, environment = (folder / "cmdline").read_bytes(), (folder / "environ").read_bytes()
            pages = int((folder / "statm").read_text().split()[1])
        except (OSError, IndexError, ValueError):  # it has just ended, or is somebody else's
            continue
        if title.startswith(b"ray::MapWorker") and f"{MARK}={os.environ[MARK]}".encode() in environment:
            yield int(folder.name), pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def captions(files: list[Path]) -> dict[str, str]:
    """The caption of each photo, by its name. A photo that occurs twice is an error."""
    found: dict[str, str] = {}
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            name = Path(entry["image"]).name
            assert name not in found, name
            found[name] = entry["text"]
    return found


if __name__ == "__main__":
    main()
