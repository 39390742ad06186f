"""What ten times as many images cost: time and memory, each point in a process of its own."""

from __future__ import annotations

import json
import math
import random
import resource
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch

from caption.data.module import CaptionData
from caption.data.readers.coco import Coco
from caption.data.resize import ImageTransform
from caption.metrics import evaluate
from caption.runtime.files import creating
from caption.text.vocabulary import Vocabulary
from tools.benchmark.harness import Setting, clock, new_process, say
from tools.documents import table

COUNTS = (1_000, 10_000, 100_000)
FEW = 500
"""Images that a process reads before it measures, so that imports do not count."""


class Point(NamedTuple):
    """What a number of images costs."""

    seconds: float
    bytes: float
    """The most that was held, beyond what few images had needed."""


def texts(count: int, seed: int = 0) -> Iterator[str]:
    """Captions of eight of 1,000 words."""
    words = random.Random(seed)
    return (" ".join(f"w{words.randrange(1000)}" for _ in range(8)) for _ in range(count))


def vocabulary(folder: Path, count: int) -> None:
    Vocabulary.build(texts(5 * count), min_count=1)


def reading(folder: Path, count: int) -> None:
    _coco(folder).read()


def ordering(folder: Path, count: int) -> None:
    data = CaptionData(_coco(folder), ImageTransform(4), 256, min_count=1)
    for _ in data.train_dataloader().batch_sampler:
        pass


def scoring(folder: Path, count: int) -> None:
    sentences = texts(5 * count)
    references = {number: [next(sentences) for _ in range(5)] for number in range(count)}
    evaluate(dict(enumerate(texts(count, seed=1))), references)


WORK: dict[str, Callable[[Path, int], None]] = {
    "vocabulary": vocabulary,
    "reading COCO's format": reading,
    "reading, and the order of an epoch": ordering,
    "scoring: BLEU, CIDEr, ROUGE-L": scoring,
}


def growth(setting: Setting) -> str:
    """A row for each work."""
    counts = COUNTS[:2] if setting.quick else COUNTS
    points_of: dict[str, list[Point]] = {name: [] for name in WORK}
    for count in counts:
        with tempfile.TemporaryDirectory() as few, tempfile.TemporaryDirectory() as many:
            write_coco(Path(few), FEW)
            write_coco(Path(many), count)
            for name, points in points_of.items():
                say(f"{name}, {count:,} images")
                with new_process() as process:  # small tensors are slower on several threads
                    points.append(process.submit(measure, name, Path(few), Path(many), count).result())
    rows = []
    for name, points in points_of.items():
        cells = [f"{point.seconds:.3g} s, {point.bytes / 1e6:.0f} MB" for point in points]
        power = math.log10(points[-1].seconds / points[-2].seconds)
        per_image = (points[-1].bytes - points[-2].bytes) / (counts[-1] - counts[-2])
        rows.append([name, *cells, f"**{power:.2f}**", f"{per_image:,.0f} B"])
    return table(["", *(f"{count:,}" for count in counts), "exponent", "per image"], rows)


def measure(name: str, few: Path, many: Path, count: int) -> Point:
    """One point, in this process. The folders are of `FEW` images, and of `count`."""
    WORK[name](few, FEW)
    before = peak()
    taken = clock(lambda: WORK[name](many, count), torch.device("cpu"))
    return Point(taken, peak() - before)


def peak() -> int:
    """The most bytes of memory that this process has held."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def write_coco(folder: Path, count: int) -> None:
    """COCO's format, with empty images."""
    entries = [{"id": number, "file_name": f"{number}.jpg"} for number in range(count)]
    annotations = [{"id": i, "image_id": i // 5, "caption": text} for i, text in enumerate(texts(5 * count))]
    for entry in entries:
        with creating(folder / str(entry["file_name"]), durable=False):
            pass
    with creating(folder / "train.json") as file:
        file.write(json.dumps({"images": entries, "annotations": annotations}).encode())


def _coco(folder: Path) -> Coco:
    return Coco({"train": str(folder / "train.json")}, {"train": str(folder)})
