"""What a thousand times as much data costs: time and memory by the number of images, each point in its own process."""

from __future__ import annotations

import json
import logging
import math
import os
import random
import tempfile
import warnings
from pathlib import Path
from typing import NamedTuple

import torch

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.box import Box
from caption.captioner import Captioner
from caption.data.images import ImageTransform
from caption.data.module import CaptionData
from caption.data.readers.coco import Coco
from caption.decoders import LSTMDecoder
from caption.encoders import SmallCNN
from caption.features.key import feature_key
from caption.features.store import FeatureStore
from caption.metrics import evaluate
from caption.search import BeamSearch
from caption.text.vocabulary import Vocabulary
from tools.benchmark.features import small_store, write_store
from tools.benchmark.harness import Setting, clock, made_up, new_process, resident_peak, say
from tools.documents import table

GRID, SIZE, PIXELS = (2, 2), 16, 4
"""Regions so small that the cost of an image, not that of its regions, is measured."""
BATCH = 256
FEW = 2 * BATCH
"""Images that a process reads before it measures, so that imports and set-up do not count."""
LARGEST = {
    "vocabulary": 6,
    "index": 6,
    "reading": 5,
    "loading": 5,
    "training": 5,
    "search": 5,
    "scoring": 5,
}
"""The most images of each measurement, as a power of ten."""


class Point(NamedTuple):
    """What a number of images costs."""

    count: int
    seconds: float
    bytes: float
    """The most that was held beyond what few images had needed."""


def prepare(folder: Path, count: int) -> None:
    """Write what the measurements read: captions, images without content, feature stores."""
    (folder / "captions.txt").write_text("\n".join(made_up(count)))
    small_store(folder / "sparse", count)
    if count > 10 ** LARGEST["reading"]:
        return
    (folder / "images").mkdir()
    for number in range(count):
        (folder / "images" / f"{number}.jpg").touch()
    entries = [{"id": number, "file_name": f"{number}.jpg"} for number in range(count)]
    texts = enumerate(made_up(5 * count))
    annotations = [{"id": i, "image_id": i // 5, "caption": text} for i, text in texts]
    (folder / "train.json").write_text(json.dumps({"images": entries, "annotations": annotations}))
    write_store(folder / "store", count, GRID, SIZE, feature_key(*tiny_encoder()))


def tiny_encoder() -> tuple[SmallCNN, ImageTransform]:
    """An encoder, always the same, and the transform for it."""
    torch.manual_seed(0)
    return SmallCNN((4, SIZE)), ImageTransform(PIXELS, "squash")


def tiny_decoder() -> LSTMDecoder:
    """A decoder of eight units."""
    return LSTMDecoder(ScoredAttention(AdditiveScore(8), Softmax()), embedding_size=4, hidden_size=8)


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


def training(folder: Path, count: int) -> None:
    module = data(folder)  # imports torchvision by way of the package, which Lightning needs
    from pytorch_lightning import Trainer

    from caption.training.module import CaptionTraining  # takes time and memory, which the others do not need

    encoder, transform = tiny_encoder()
    model = CaptionTraining(encoder, tiny_decoder(), module.vocabulary, transform)
    off = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
    trainer = Trainer(max_epochs=1, accelerator="cpu", limit_val_batches=0, **dict.fromkeys(off, False))
    trainer.fit(model, datamodule=module)


def search(folder: Path, count: int) -> None:
    store = FeatureStore(folder / "store")
    encoder, transform = tiny_encoder()
    words = Vocabulary([f"w{i}" for i in range(500)])
    captioner = Captioner(encoder, tiny_decoder(), words, transform, BeamSearch(3, 8)).eval()
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
    """Every measurement for rising numbers of images."""
    fewer = 1 if setting.quick else 0
    found: dict[str, list[Point]] = {name: [] for name in LARGEST}
    for power in range(3 - fewer, 7 - fewer):
        with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
            prepare(Path(small), FEW)
            prepare(Path(large), 10**power)
            for name in (name for name, largest in LARGEST.items() if power <= largest - fewer):
                with new_process() as process:  # tiny tensors are slower on several threads
                    point = process.submit(measure, name, 10**power, Path(small), Path(large)).result()
                found[name].append(point)
                say(f"{name}, {10**power:,} images: {point.seconds:.2f} s")
    return report(found)


def measure(name: str, count: int, small: Path, large: Path) -> Point:
    """One point, in this process."""
    run = globals()[name]
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    run(small, FEW)
    before = resident_peak()
    taken, _ = clock(lambda: run(large, count), torch.device("cpu"))
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
