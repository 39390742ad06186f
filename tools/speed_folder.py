"""A folder of photos to captions, beside the encoder alone on the same photos."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from benchmark_photos import encoder_of, photos
from speed_common import Setting, say, table

from caption import checkpoint
from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.batch_inference import BATCH
from caption.captioner import Captioner
from caption.data.images import ImageTransform, open_image
from caption.decoders import DeepOutput, Gate, LSTMDecoder
from caption.encoders import LinearRefiner
from caption.search import BeamSearch, Search
from caption.text.vocabulary import Vocabulary

ENCODERS = (("mobilenet_v2", "features"), ("resnet50", "layer4"))
VOCABULARY, WORDS = 2543, 12
ROUNDS = 3
HEAD = [
    "encoder",
    "search",
    "encoder alone",
    "photo to caption",
    "of it",
    "by CPU time",
    "decoding",
    "searching",
]
PROGRAM = f"""
import sys
sys.path.append({str(Path(__file__).parent)!r})
from benchmark_memory import peak
from caption.cli.main import main
code = main(sys.argv[1:])
print(peak(), file=sys.stderr)
sys.exit(code)
"""


def measure(setting: Setting) -> list[str]:
    """Markdown lines."""
    count = BATCH if setting.quick else 2 * BATCH
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        images, what = photos(count, Path(folder) / "photos")
        paths = [image.path for image in images]
        for encoder in ENCODERS[:1] if setting.quick else ENCODERS:
            captioner = made(*encoder).to(setting.device)
            # A larger encoder takes longer, and its ratio is less in doubt.
            few = paths if encoder is ENCODERS[0] else paths[:BATCH]
            searches = (
                (BeamSearch(5, WORDS), BeamSearch(1, WORDS))
                if encoder is ENCODERS[0]
                else (BeamSearch(5, WORDS),)
            )
            for search in searches:
                say(f"folder: {encoder[0]}, beam {search.beam_size}")
                rows.append(
                    [encoder[0], f"beam {search.beam_size}", *compare(captioner, few, search, setting)]
                )
        peaks = memory(Path(folder), paths, setting)
    return [
        "## From a folder of photos to captions",
        "",
        f"{what}, by `caption.batch_inference`, which `caption describe` uses: files are decoded while images are",
        "encoded and captions searched for, one batch after the other. Images per second, medians. *Encoder",
        "alone*: the same images,",
        "decoded and in memory. *Of it*: the ratio of the rates, round by round; *by CPU time*: of the processors'",
        "time that an image takes, the ratio of the rates where all processors are in use. *Decoding*, *searching*:",
        "each alone, in parts of the encoder's CPU time. Decoder as in configs/flickr8k_soft.yaml, but untrained:",
        f"V {VOCABULARY:,}, captions of {WORDS} words. For each photo the search with a beam of 5 multiplies about as",
        "often as MobileNetV2, 0.3 billion times; ResNet-50 does it 4.1 billion times.",
        "",
        *table(HEAD, rows),
        "",
        f"`caption describe FOLDER --format jsonl` held at its fullest {peaks}.",
    ]


def made(name: str, layer: str) -> Captioner:
    """Encoder and decoder of configs/flickr8k_soft.yaml, with another encoder perhaps; untrained."""
    encoder = encoder_of(name, layer)
    decoder = LSTMDecoder(
        ScoredAttention(AdditiveScore(256), Softmax()),
        embedding_size=256,
        hidden_size=512,
        gate=Gate(),
        readout=DeepOutput(),
    )
    words = Vocabulary([f"word{i}" for i in range(VOCABULARY - 4)])
    transform = ImageTransform(224, "squash")
    return Captioner(encoder, decoder, words, transform, refiner=LinearRefiner(512)).eval()


def compare(captioner: Captioner, paths: list[Path], search: Search, setting: Setting) -> list[str]:
    """Rates, and their ratio."""
    pixels = torch.stack([captioner.transform(open_image(path)) for path in paths])
    batches = pixels.split(BATCH)

    @torch.no_grad()
    def encoded() -> list[Any]:
        return [captioner.encoder(batch.to(setting.device)) for batch in batches]

    regions = encoded()
    forms: dict[str, Callable[[], Any]] = {
        "alone": encoded,
        "stream": lambda: list(captioner.describe_each(paths, search)),
        "decoding": lambda: [captioner.transform(open_image(path)) for path in paths],
        "searching": lambda: [captioner.generate(each, search) for each in regions],
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in forms}
    list(captioner.describe_each(paths[:BATCH], search))  # the first run of a network sets it up
    for _ in range(min(ROUNDS, setting.rounds)):
        for name, run in forms.items():
            clock, work = time.perf_counter(), time.process_time()
            run()
            if setting.device.type == "cuda":
                torch.cuda.synchronize(setting.device)
            times[name].append((time.perf_counter() - clock, time.process_time() - work))
    return [
        rate(times["alone"], len(paths)),
        rate(times["stream"], len(paths)),
        f"**{ratio(times, 'alone', 'stream', 0)}**",
        ratio(times, "alone", "stream", 1),
        ratio(times, "decoding", "alone", 1),
        ratio(times, "searching", "alone", 1),
    ]


def rate(times: list[tuple[float, float]], count: int) -> str:
    """Images per second."""
    return f"{count / statistics.median(clock for clock, _ in times):.1f}"


def ratio(times: dict[str, list[tuple[float, float]]], one: str, other: str, which: int) -> str:
    """Of clock (0) or CPU (1) times, round by round: median and range."""
    found = sorted(a[which] / b[which] for a, b in zip(times[one], times[other], strict=True))
    return f"{statistics.median(found):.0%} ({found[0]:.0%} to {found[-1]:.0%})"


def memory(folder: Path, paths: list[Path], setting: Setting) -> str:
    """What the command held for few photos and for many, as a process of its own."""
    captioner = made(*ENCODERS[0])
    captioner.search = BeamSearch(1, WORDS)
    checkpoint.save(captioner, folder / "model.ckpt")
    found = []
    for count in (BATCH, 2 * BATCH) if setting.quick else (2 * BATCH, 10 * BATCH):
        say(f"folder: memory at {count} photos")
        many = folder / f"{count}"
        many.mkdir()
        for number in range(count):
            (many / f"{number:06}.jpg").symlink_to(paths[number % len(paths)])
        command = ["describe", str(many), "--model", str(folder / "model.ckpt"), "--format", "jsonl"]
        command += ["--device", str(setting.device)]
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, *command], capture_output=True, text=True, check=True
        )
        assert len(ran.stdout.splitlines()) == count
        found.append(f"{int(ran.stderr.splitlines()[-1]) / 1e6:,.0f} MB for {count:,} photos")
    return ", ".join(found)
