"""How soon `caption describe` begins its work, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

import torch
from PIL import Image

from caption import checkpoint
from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.data.images import ImageTransform
from caption.decoders import LSTMDecoder
from caption.encoders import TorchvisionEncoder
from caption.text.vocabulary import Vocabulary
from tools.benchmark.harness import Setting, say, seconds, spread
from tools.documents import table

LIBRARIES = "import caption.encoders.torchvision_compat"  # torch and torchvision, and nothing else
WORK = """
import sys, time
import caption.checkpoint, caption.encoders.torchvision_compat
from caption.model_zoo import load
started = time.perf_counter()
load(sys.argv[2]).describe(sys.argv[1])
print(time.perf_counter() - started)
"""
SHAPES, MOBILENET = "shapes", "MobileNetV2"
Round = dict[str, float]


def startup(setting: Setting) -> str:
    """Whole processes on one thread, in turns."""
    say("start-up")
    with tempfile.TemporaryDirectory() as folder:
        photo, model = Path(folder) / "photo.png", Path(folder) / "mobilenet.ckpt"
        Image.new("RGB", (224, 224), "teal").save(photo)
        checkpoint.save(mobilenet(), model)
        models = {SHAPES: SHAPES, MOBILENET: str(model)}
        count = 1 if setting.quick else max(setting.rounds, 5)
        return report([one_round(str(photo), models) for _ in range(count)])


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
    """Seconds of each process, one after the other, so that other work on the machine slows all of them."""
    found = {"--help": run("-m", "caption", "describe", "--help")[0], "libraries": run("-c", LIBRARIES)[0]}
    for name, model in models.items():
        found[name] = run("-m", "caption", "describe", photo, "--model", model)[0]
        found[f"{name}'s work"] = float(run("-c", WORK, photo, model)[1])
    return found


def run(*arguments: str) -> tuple[float, str]:
    """Wall-clock seconds of a Python process on one thread, and what it printed."""
    started, environment = perf_counter(), {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return perf_counter() - started, done.stdout


def report(rounds: list[Round]) -> str:
    """The rounds' seconds; overhead is what remains of a process without its own work and the imports."""

    def row(model: str) -> list[str]:
        whole, work = [one[model] for one in rounds], [one[f"{model}'s work"] for one in rounds]
        overhead = [one[model] - one[f"{model}'s work"] - one["libraries"] for one in rounds]
        return [model, *(spread(values, seconds) for values in (whole, work, overhead))]

    libraries, usage = (spread((one[name] for one in rounds), seconds) for name in ("libraries", "--help"))
    head = ["model", "`caption describe`", "its own work", "overhead"]
    return (
        f"Rounds: {len(rounds)}. Importing torch and torchvision takes {libraries};\n"
        f"`caption describe --help` takes {usage}.\n\n{table(head, [row(SHAPES), row(MOBILENET)])}"
    )
