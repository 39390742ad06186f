"""How soon `caption describe` begins its work, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from PIL import Image

from tools.benchmark.harness import Setting, seconds, spread
from tools.documents import table

LIBRARIES = "import caption, torch, torchvision"
"""Torch and torchvision, and nothing else."""
WORK = """
import sys, time
import caption.checkpoint, torchvision
from caption.models.model_zoo import load
started = time.perf_counter()
load(sys.argv[2]).describe(sys.argv[1])
print(time.perf_counter() - started)
"""
MODELS = ("shapes", "photos")
Round = dict[str, float]


def startup(setting: Setting) -> str:
    """Whole processes on one thread, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        photo = Path(folder) / "photo.png"
        Image.new("RGB", (224, 224), "teal").save(photo)
        count = 1 if setting.quick else max(setting.rounds, 5)
        return report([one_round(str(photo)) for _ in range(count)])


def one_round(photo: str) -> Round:
    """Seconds of each process, one after the other, so that other work on the machine slows all of them."""
    times = {"--help": run("-m", "caption", "describe", "--help")[0], "libraries": run("-c", LIBRARIES)[0]}
    for model in MODELS:
        times[model] = run("-m", "caption", "describe", photo, "--model", model)[0]
        times[f"{model}'s work"] = float(run("-c", WORK, photo, model)[1])
    return times


def run(*arguments: str) -> tuple[float, str]:
    """Wall-clock seconds of a Python process on one thread, and what it printed."""
    started, environment = perf_counter(), {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    process = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return perf_counter() - started, process.stdout


def report(rounds: list[Round]) -> str:
    """The rounds' seconds; overhead is what remains of a process without its own work and the imports."""
    rows = []
    for model in MODELS:
        whole, work = [one[model] for one in rounds], [one[f"{model}'s work"] for one in rounds]
        overhead = [one[model] - one[f"{model}'s work"] - one["libraries"] for one in rounds]
        rows.append([model, *(spread(values, seconds) for values in (whole, work, overhead))])
    libraries, usage = (spread((one[name] for one in rounds), seconds) for name in ("libraries", "--help"))
    return (
        f"{len(rounds)} rounds. Importing torch and torchvision takes {libraries};\n`caption describe --help` takes "
        f"{usage}.\n\n{table(['model', '`caption describe`', 'its own work', 'overhead'], rows)}"
    )
