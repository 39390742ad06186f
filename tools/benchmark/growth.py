"""What a thousand times as much data costs: time and memory by the number of images, each point in its own process."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.data.images import Box, ImageTransform
from caption.data.module import CaptionData
from caption.data.readers.coco import Coco
from caption.decoders import LSTMDecoder
from caption.encoders import SmallCNN
from caption.features.key import feature_key
from caption.features.shards import FORMAT, PhotoFile, ShardWriter
from caption.features.store import FeatureStore
from caption.metrics import evaluate
from caption.search import BeamSearch
from caption.text.vocabulary import Vocabulary
from tools.benchmark.harness import Setting, in_process, made_up, resident_peak, say
from tools.benchmark_features import small_store
from tools.documents import table

FIGURE = Path(__file__).resolve().parents[2] / "docs" / "growth.png"
GRID, SIZE, PIXELS = (2, 2), 16, 4
"""Regions so small that the cost of an image, not that of its regions, is measured."""
BATCH = 256
FEW = 2 * BATCH
"""Images that a process reads before it measures, so that imports and set-up do not count."""
LARGEST = {
    "vocabulary": 6,
    "index": 6,
    **dict.fromkeys(("reading", "loading", "training", "search", "scoring"), 5),
}
"""The most images of each measurement, as a power of ten."""


class Point(NamedTuple):
    """What a number of images costs."""

    count: int
    seconds: float
    bytes: float
    """The most that was held beyond what few images had needed."""


# -- the data


def prepare(folder: Path, count: int, names: list[str]) -> None:
    """Write what the measurements read: a caption file, images without content, a feature store."""
    if {"reading", "loading", "training", "search"} & set(names):
        (folder / "images").mkdir()
        for number in range(count):
            (folder / "images" / f"{number}.jpg").touch()
        entries = [{"id": number, "file_name": f"{number}.jpg"} for number in range(count)]
        texts = enumerate(made_up(5 * count))
        annotations = [{"id": i, "image_id": i // 5, "caption": text} for i, text in texts]
        (folder / "train.json").write_text(json.dumps({"images": entries, "annotations": annotations}))
        write_store(folder / "store", count)
    if "vocabulary" in names:
        (folder / "captions.txt").write_text("\n".join(made_up(count)))
    if "index" in names:
        small_store(folder / "sparse", count)


def write_store(folder: Path, count: int) -> None:
    """Noise, as `caption features` would store it."""
    regions = np.random.default_rng(0).standard_normal((BATCH, GRID[0] * GRID[1], SIZE)).astype(np.float16)
    folder.mkdir()
    header = {"format": FORMAT, "key": feature_key(*tiny_encoder()), "grids": [list(GRID)]}
    writer = ShardWriter(folder, header)
    for first in range(0, count, BATCH):
        ids = range(first, min(first + BATCH, count))
        writer.add(ids, [PhotoFile(PIXELS, PIXELS, 0)] * len(ids), {"view.0": regions[: len(ids)]})
    writer.save()


def tiny_encoder() -> tuple[SmallCNN, ImageTransform]:
    """An encoder, always the same, and the transform for it."""
    torch.manual_seed(0)
    return SmallCNN((4, SIZE)), ImageTransform(PIXELS, "squash")


# -- what is measured; the document says what each function does


def vocabulary(folder: Path, count: int) -> None:
    with open(folder / "captions.txt", encoding="utf-8") as lines:
        Vocabulary.build(lines)


def index(folder: Path, count: int) -> None:
    store = FeatureStore(folder / "sparse")
    for number in random.Random(0).choices(range(count), k=1000):
        store.photo(number)


def read_captions(folder: Path) -> Coco:
    return Coco({"train": str(folder / "train.json")}, {"train": str(folder / "images")})


def reading(folder: Path, count: int) -> None:
    read_captions(folder).read()


def data(folder: Path) -> CaptionData:
    """The data of training, regions from a store."""
    store = str(folder / "store")
    return CaptionData(read_captions(folder), tiny_encoder()[1], BATCH, min_count=1, features=store)


def loading(folder: Path, count: int) -> None:
    for _ in data(folder).train_dataloader():
        pass


def make_model(words: Vocabulary) -> Any:
    """A model of eight units."""
    from caption.training.module import (
        CaptionTraining,
    )  # takes seconds and memory, which the others do not need

    encoder, transform = tiny_encoder()
    decoder = LSTMDecoder(ScoredAttention(AdditiveScore(8), Softmax()), embedding_size=4, hidden_size=8)
    return CaptionTraining(encoder, decoder, words, transform, search=BeamSearch(3, 8))


def training(folder: Path, count: int) -> None:
    module = data(folder)  # imports torchvision by way of the package, which Lightning needs
    from pytorch_lightning import Trainer

    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(max_epochs=1, accelerator="cpu", limit_val_batches=0, **dict.fromkeys(off, False))
    trainer.fit(make_model(module.vocabulary), datamodule=module)


def search(folder: Path, count: int) -> None:
    store = FeatureStore(folder / "store")
    captioner = make_model(Vocabulary([f"w{i}" for i in range(500)])).captioner.eval()
    with open(os.devnull, "w", encoding="utf-8") as out:
        for first in range(0, count, BATCH):
            ids = range(first, min(first + BATCH, count))
            (regions,) = store.read_many(ids)
            found = captioner.generate((regions._replace(vectors=regions.vectors.float()),))
            for caption in captioner.captions(found, [GRID], [Box(0, 0, PIXELS, PIXELS)] * len(ids)):
                print(json.dumps(caption.to_dict()), file=out)


def scoring(folder: Path, count: int) -> None:
    texts = made_up(5 * count)
    references = {number: tuple(next(texts) for _ in range(5)) for number in range(count)}
    evaluate(dict(enumerate(made_up(count, seed=1))), references)


# -- measuring


def growth(setting: Setting) -> str:
    """Every measurement for rising numbers of images; also draws the figure, except with --quick."""
    fewer = 1 if setting.quick else 0
    found: dict[str, list[Point]] = {name: [] for name in LARGEST}
    for power in range(3 - fewer, 7 - fewer):
        names = [name for name, largest in LARGEST.items() if power <= largest - fewer]
        with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
            prepare(Path(small), FEW, names)
            prepare(Path(large), 10**power, names)
            for name in names:
                found[name].append(in_process(measure, name, 10**power, Path(small), Path(large)))
                say(f"{name}, {10**power:,} images: {found[name][-1].seconds:.2f} s")
    if not setting.quick:
        draw(found, FIGURE)
    return report(found)


def measure(name: str, count: int, small: Path, large: Path) -> Point:
    """One point, in this process."""
    run = globals()[name]
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)  # tiny tensors are slower on more
    run(small, FEW)
    before, started = resident_peak(), time.perf_counter()
    run(large, count)
    taken = time.perf_counter() - started
    return Point(count, taken, max(0, resident_peak() - before))  # Linux counts pages approximately


def exponent(points: list[Point]) -> float:
    """p of seconds ~ images^p, over the last tenfold."""
    first, last = points[-2:]
    return math.log(last.seconds / first.seconds) / math.log(last.count / first.count)


def report(found: dict[str, list[Point]]) -> str:
    """The table."""
    counts = sorted({point.count for points in found.values() for point in points})
    rows = []
    for name, points in found.items():
        cells = [f"{point.seconds:.3g} s, {point.bytes / 1e6:.0f} MB" for point in points]
        cells += [""] * (len(counts) - len(cells))
        first, last = points[-2:]
        per_image = (last.bytes - first.bytes) / (last.count - first.count)
        rows.append([name, *cells, f"**{exponent(points):.2f}**", f"{per_image:,.0f} B"])
    return table(["", *(f"{count:,}" for count in counts), "exponent", "per image"], rows)


def draw(found: dict[str, list[Point]], file: Path) -> None:
    """Time and memory, on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    clock, memory = figure.subplots(1, 2)
    for name, points in found.items():
        counts = [point.count for point in points]
        clock.loglog(counts, [point.seconds for point in points], "o-", label=name, markersize=4)
        memory.loglog(counts, [max(point.bytes, 1e5) / 1e6 for point in points], "o-", markersize=4)
    (low, high), bottom = clock.get_xlim(), clock.get_ylim()[0]
    clock.loglog([low, high], [bottom, bottom * high / low], ":", color="grey", label="linear")
    clock.set(xlabel="images", ylabel="seconds")
    memory.set(xlabel="images", ylabel=f"MB beyond those of {FEW} images")
    figure.legend(*clock.get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(file, dpi=110)
