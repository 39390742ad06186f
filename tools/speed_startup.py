"""How soon `caption describe` begins its work, as processes of their own."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import torch
from PIL import Image
from speed_common import Setting, say, seconds, table

from caption import checkpoint
from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.data.images import ImageTransform
from caption.decoders import LSTMDecoder
from caption.encoders import TorchvisionEncoder
from caption.text.vocabulary import Vocabulary

LIBRARIES = "import caption.encoders.torchvision_compat"  # torch and torchvision, and nothing else
WORK = """
import sys, time
import caption.checkpoint, caption.encoders.torchvision_compat
from caption.model_zoo import load
started = time.perf_counter()
load(sys.argv[2]).describe(sys.argv[1])
print(time.perf_counter() - started)
"""
HEAD = ["model", "`caption describe`", "its own work", "overhead"]
SHAPES, MOBILENET = "shapes", "MobileNetV2"

Round = dict[str, float]


def measure(setting: Setting) -> list[str]:
    """Markdown lines."""
    say("start-up")
    with tempfile.TemporaryDirectory() as folder:
        photo, model = Path(folder) / "photo.png", Path(folder) / "mobilenet.ckpt"
        Image.new("RGB", (224, 224), "teal").save(photo)
        checkpoint.save(mobilenet(), model)
        models = {SHAPES: SHAPES, MOBILENET: str(model)}
        count = 1 if setting.quick else max(setting.rounds, 5)
        rounds = [one_round(str(photo), models) for _ in range(count)]
    return report(rounds)


def mobilenet() -> Captioner:
    """A small captioner with torchvision's MobileNetV2, untrained."""
    torch.manual_seed(0)
    return Captioner(
        TorchvisionEncoder("mobilenet_v2", "features"),
        LSTMDecoder(ScoredAttention(AdditiveScore(128), Softmax()), embedding_size=128, hidden_size=128),
        Vocabulary([f"word{number}" for number in range(1000)]),
        ImageTransform(224),
    )


def one_round(photo: str, models: dict[str, str]) -> Round:
    """Seconds of each process, one after the other, so that a busy machine is busy for all of them."""
    found = {"--help": run("-m", "caption", "describe", "--help")[0], "libraries": run("-c", LIBRARIES)[0]}
    for name, model in models.items():
        found[name] = run("-m", "caption", "describe", photo, "--model", model)[0]
        found[f"{name}'s work"] = float(run("-c", WORK, photo, model)[1])
    return found


def run(*arguments: str) -> tuple[float, str]:
    """Wall-clock seconds of a Python process on one thread, and what it printed."""
    started = perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return perf_counter() - started, done.stdout


def report(rounds: list[Round]) -> list[str]:
    """Markdown lines of the rounds' seconds."""

    def row(model: str) -> list[str]:
        whole, work = [one[model] for one in rounds], [one[f"{model}'s work"] for one in rounds]
        overhead = [one[model] - one[f"{model}'s work"] - one["libraries"] for one in rounds]
        return [model, *map(spread, (whole, work, overhead))]

    return [
        "## Start-up",
        "",
        f"Whole processes on one thread, in turns: median of {len(rounds)} rounds and spread.",
        f"Importing torch and torchvision takes {spread([one['libraries'] for one in rounds])};",
        f"`caption describe --help` {spread([one['--help'] for one in rounds])}.",
        "*Its own work*: reading the checkpoint and captioning one image, in a process that has imported all it needs.",
        "*Overhead*: what `caption describe` takes beyond that work and those imports, round by round. The installed",
        f"model `{SHAPES}` needs no torchvision, which is then not imported.",
        "",
        *table(HEAD, [row(SHAPES), row(MOBILENET)]),
    ]


def spread(values: list[float]) -> str:
    """Median, smallest and largest."""
    low, middle, high = map(signed, (min(values), statistics.median(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({low} to {high})"


def signed(value: float) -> str:
    """A time that may be negative."""
    return f"−{seconds(-value)}" if value < 0 else seconds(value)
