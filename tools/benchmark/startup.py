"""How soon `caption describe` begins its work, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from PIL import Image

from caption.core.runtime.files import creating
from tools.benchmark.harness import Setting, seconds, spread
from tools.documents import table

LIBRARY = "import torch"
WORK = """
import sys, time
import caption.models.checkpoint
from caption.models.model_zoo import load
started = time.perf_counter()
load(sys.argv[2]).describe(sys.argv[1])
print(time.perf_counter() - started)
"""
"""Reading a model and captioning a photo, in a process that has imported what this needs."""
MODELS = ("shapes", "photos")
Round = dict[str, float]


def startup(setting: Setting) -> str:
    """Whole processes on one thread, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        photo = Path(folder) / "photo.png"
        with creating(photo) as file:
            Image.new("RGB", (224, 224), "teal").save(file, "PNG")
        count = 1 if setting.quick else max(setting.rounds, 5)
        return report([one_round(str(photo), number) for number in range(count)])


def one_round(photo: str, number: int) -> Round:
    """Seconds of each process, one after the other, so that other work on the machine slows all of them."""
    times = {"--help": run("-m", "caption", "describe", "--help")[0], "torch": run("-c", LIBRARY)[0]}
    for model in MODELS:
        describe = ("-m", "caption", "describe", photo, "--model", model)
        times[model] = run(*describe)[0]
        times[f"{model}, heatmap"] = run(*describe, "--heatmap", f"{photo}.{model}{number}.png")[0]
        times[f"{model}, work"] = float(run("-c", WORK, photo, model)[1])
    return times


def run(*arguments: str) -> tuple[float, str]:
    """Wall-clock seconds of a Python process on one thread, and what it printed."""
    started, environment = perf_counter(), {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    process = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return perf_counter() - started, process.stdout


def report(rounds: list[Round]) -> str:
    """The rounds' seconds."""
    rows = []
    for model in MODELS:
        names = (model, f"{model}, heatmap", f"{model}, work")
        rows.append([model, *(spread((one[name] for one in rounds), seconds) for name in names)])
    torch, usage = (spread((one[name] for one in rounds), seconds) for name in ("torch", "--help"))
    head = ["model", "caption", "caption and heatmap", "its own work"]
    return (
        f"{len(rounds)} rounds. `import torch` takes {torch}; `caption describe --help` {usage}.\n\n"
        f"{table(head, rows)}"
    )
