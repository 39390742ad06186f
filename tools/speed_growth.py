"""What a thousand times as much data costs: time and memory by the number of images, each point in its own process."""

from __future__ import annotations

import json
import logging
import math
import random
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from benchmark_memory import peak
from speed_common import Setting, say, table

FIGURE = Path(__file__).resolve().parents[1] / "docs" / "growth.png"
COMMON, KNOWN = 1000, 10_000
"""Different words; captions that are made up once, the others being made of their halves."""
GRID, SIZE, PIXELS = (2, 2), 16, 4
"""Of regions so small that what belongs to an image, and not to its regions, is what counts."""
BATCH = 256
FEW = 2 * BATCH
"""Images that are gone through before anything is measured: what is imported and set up once is there then."""


class Point(NamedTuple):
    """What so many images cost."""

    count: int
    seconds: float
    bytes: float
    """The most that was held beyond what few images had needed."""


# -- the data --------------------------------------------------------------------------------------------------


def captions(count: int, seed: int = 0) -> Iterator[str]:
    """So many captions of eight words, whose frequencies fall as those of real words do."""
    draw = random.Random(seed)
    shares = [1 / (rank + 5) for rank in range(COMMON)]
    words = draw.choices(range(COMMON), shares, k=4 * KNOWN)
    halves = [" ".join(f"w{word}" for word in words[i : i + 4]) for i in range(0, len(words), 4)]
    for _ in range(count):
        yield f"{halves[draw.randrange(KNOWN)]} {halves[draw.randrange(KNOWN)]}"


def prepare(folder: Path, count: int, names: list[str]) -> None:
    """What the measurements read: a caption file, images without content, a feature store."""
    if {"reading", "loading", "training", "search"} & set(names):
        images = folder / "images"
        images.mkdir()
        texts = captions(5 * count)
        for number in range(count):
            (images / f"{number}.jpg").touch()
        entries = [{"id": number, "file_name": f"{number}.jpg"} for number in range(count)]
        annotations = [{"id": i, "image_id": i // 5, "caption": text} for i, text in enumerate(texts)]
        (folder / "train.json").write_text(json.dumps({"images": entries, "annotations": annotations}))
        write_store(folder / "store", count)
    if "vocabulary" in names:
        (folder / "captions.txt").write_text("\n".join(captions(count)))
    if "index" in names:
        from benchmark_features import small_store

        small_store(folder / "sparse", count)


def write_store(folder: Path, count: int) -> None:
    """Noise, as `caption features` would store it."""
    import numpy as np

    from caption.features.key import feature_key
    from caption.features.shards import FORMAT, PhotoFile, ShardWriter

    encoder, transform = tiny_encoder()
    regions = np.random.default_rng(0).standard_normal((BATCH, GRID[0] * GRID[1], SIZE)).astype(np.float16)
    folder.mkdir()
    header = {"format": FORMAT, "key": feature_key(encoder, transform), "grids": [list(GRID)]}
    writer = ShardWriter(folder, header)
    for first in range(0, count, BATCH):
        ids = range(first, min(first + BATCH, count))
        writer.add(ids, [PhotoFile(PIXELS, PIXELS, 0)] * len(ids), {"view.0": regions[: len(ids)]})
    writer.save()


def tiny_encoder():  # type: ignore[no-untyped-def]
    """An encoder, always the same, and the transform for it."""
    from caption.data.images import ImageTransform
    from caption.encoders import SmallCNN

    torch.manual_seed(0)
    return SmallCNN((4, SIZE)), ImageTransform(PIXELS, "squash")


# -- what is measured ------------------------------------------------------------------------------------------


def vocabulary(folder: Path, count: int) -> None:
    """Counting the words of one caption per image."""
    from caption.text.vocabulary import Vocabulary

    with open(folder / "captions.txt", encoding="utf-8") as lines:
        Vocabulary.build(lines)


def index(folder: Path, count: int) -> None:
    """Opening a feature store, and asking it for a thousand images."""
    from caption.features.store import FeatureStore

    store = FeatureStore(folder / "sparse")
    for number in random.Random(0).choices(range(count), k=1000):
        store.photo(number)


def reading(folder: Path, count: int) -> None:
    """Reading and checking captions and images of COCO's format."""
    from caption.data.readers.coco import Coco

    Coco({"train": str(folder / "train.json")}, {"train": str(folder / "images")}).read()


def data(folder: Path):  # type: ignore[no-untyped-def]
    """The same as the training loop's data, regions from a store."""
    from caption.data.module import CaptionData
    from caption.data.readers.coco import Coco

    splits = {"train": str(folder / "train.json")}
    reader = Coco(splits, {"train": str(folder / "images")})
    transform = tiny_encoder()[1]
    return CaptionData(reader, transform, BATCH, min_count=1, features=str(folder / "store"))


def loading(folder: Path, count: int) -> None:
    """Reading, and an epoch of batches."""
    for _ in data(folder).train_dataloader():
        pass


def model(words):  # type: ignore[no-untyped-def]
    """Small all over."""
    from caption.attention import AdditiveScore, ScoredAttention, Softmax
    from caption.decoders import LSTMDecoder
    from caption.search import BeamSearch
    from caption.training.module import CaptionTraining

    encoder, transform = tiny_encoder()
    decoder = LSTMDecoder(ScoredAttention(AdditiveScore(8), Softmax()), embedding_size=4, hidden_size=8)
    return CaptionTraining(encoder, decoder, words, transform, search=BeamSearch(3, 8))


def training(folder: Path, count: int) -> None:
    """Reading, and an epoch of training."""
    module = data(folder)  # which makes torchvision importable where Lightning wants it
    from pytorch_lightning import Trainer

    quiet = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    Trainer(max_epochs=1, accelerator="cpu", limit_val_batches=0, **quiet).fit(
        model(module.vocabulary), datamodule=module
    )


def search(folder: Path, count: int) -> None:
    """Searching for the captions of stored regions, which are written as they come."""
    from caption.data.images import Box
    from caption.features.store import FeatureStore
    from caption.text.vocabulary import Vocabulary

    store = FeatureStore(folder / "store")
    captioner = model(Vocabulary([f"w{i}" for i in range(500)])).captioner.eval()
    with open("/dev/null", "w", encoding="utf-8") as out:
        for first in range(0, count, BATCH):
            ids = range(first, min(first + BATCH, count))
            (regions,) = store.read_many(ids)
            found = captioner.generate(regions._replace(vectors=regions.vectors.float()))
            for caption in captioner.captions(found, GRID, [Box(0, 0, PIXELS, PIXELS)] * len(ids)):
                print(json.dumps(caption.to_dict()), file=out)


def scoring(folder: Path, count: int) -> None:
    """Comparing one caption per image with five: BLEU, CIDEr and ROUGE-L."""
    from caption.metrics.evaluation import evaluate

    texts = captions(5 * count)
    references = {number: tuple(next(texts) for _ in range(5)) for number in range(count)}
    evaluate(dict(enumerate(captions(count, seed=1))), references)


LARGEST = {
    "vocabulary": 6,
    "index": 6,
    "reading": 5,
    "loading": 5,
    "training": 5,
    "search": 5,
    "scoring": 5,
}
"""As powers of ten."""


# -- measuring -------------------------------------------------------------------------------------------------


def measure(setting: Setting) -> list[str]:
    """Markdown lines; draws the figure, but not when quick."""
    fewer = 1 if setting.quick else 0
    found: dict[str, list[Point]] = {name: [] for name in LARGEST}
    for power in range(3 - fewer, 7 - fewer):
        names = [name for name, largest in LARGEST.items() if power <= largest - fewer]
        with tempfile.TemporaryDirectory() as small, tempfile.TemporaryDirectory() as large:
            prepare(Path(small), FEW, names)
            prepare(Path(large), 10**power, names)
            for name in names:
                found[name].append(in_process(name, 10**power, small, large))
                say(f"{name}, {10**power:,} images: {found[name][-1].seconds:.2f} s")
    if not setting.quick:
        draw(found, FIGURE)
    return report(found)


def in_process(name: str, count: int, small: str, large: str) -> Point:
    """In a process of its own."""
    command = [sys.executable, __file__, name, str(count), small, large]
    ran = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Point(count, *json.loads(ran.stdout.splitlines()[-1]))


def here(name: str, count: int, small: str, large: str) -> None:
    """Seconds and bytes, on stdout."""
    run: Callable[[Path, int], None] = globals()[name]
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)  # tiny tensors are slower on more
    run(Path(small), FEW)
    before, started = peak(), time.perf_counter()
    run(Path(large), count)
    print(json.dumps([time.perf_counter() - started, peak() - before]))


def exponent(points: list[Point]) -> float:
    """p of seconds ~ images^p, over the last tenfold."""
    first, last = points[-2:]
    return math.log(last.seconds / first.seconds) / math.log(last.count / first.count)


def report(found: dict[str, list[Point]]) -> list[str]:
    """The section."""
    counts = sorted({point.count for points in found.values() for point in points})
    rows = []
    for name, points in found.items():
        cells = [f"{point.seconds:.3g} s, {point.bytes / 1e6:.0f} MB" for point in points]
        cells += [""] * (len(counts) - len(cells))
        first, last = points[-2:]
        per_image = (last.bytes - first.bytes) / (last.count - first.count)
        rows.append([name, *cells, f"**{exponent(points):.2f}**", f"{per_image:,.0f} B"])
    return [
        "## Growth",
        "",
        f"Time and memory by the number of images, each in a process of its own, after {FEW} images and beyond what",
        "they took. *Exponent*: p of time ~ imagesᵖ, over the last tenfold. *Per image*: growth of memory over it.",
        "",
        *(f"- {name}: {in_a_list(globals()[name].__doc__)}" for name in found),
        "",
        f"Captions have eight of {COMMON:,} words, five to an image; regions are 2×2×16 and the model has eight units,",
        "so that what it costs to keep account of an image is seen, and not what it costs to compute with it.",
        "",
        *table(["", *(f"{count:,}" for count in counts), "exponent", "per image"], rows),
        "",
        "![Time and memory by the number of images](growth.png)",
    ]


def in_a_list(sentence: str) -> str:
    """Without capital and full stop."""
    return f"{sentence[0].lower()}{sentence[1:]}".rstrip(".")


def draw(found: dict[str, list[Point]], file: Path) -> None:
    """Time and memory, on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.6), layout="constrained")
    clock, memory = figure.subplots(1, 2)
    for name, points in found.items():
        counts = [point.count for point in points]
        clock.loglog(counts, [point.seconds for point in points], "o-", label=name, markersize=4)
        memory.loglog(counts, [max(point.bytes, 1e5) / 1e6 for point in points], "o-", markersize=4)
    low, high = clock.get_xlim()[0], clock.get_xlim()[1]
    bottom = clock.get_ylim()[0]
    clock.loglog([low, high], [bottom, bottom * high / low], ":", color="grey", label="linear")
    clock.set(xlabel="images", ylabel="seconds")
    memory.set(xlabel="images", ylabel=f"MB beyond those of {FEW} images")
    figure.legend(*clock.get_legend_handles_labels(), loc="outside right upper")
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    name, count, small, large = sys.argv[1:]
    here(name, int(count), small, large)
