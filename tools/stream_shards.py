"""Memory and rate of training from shards: an epoch of many small generated images.

    python -m tools.stream_shards --samples 200000 --out /tmp/shards

Prints a Markdown table: samples read so far, resident memory of the process and its workers, and the rate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from caption.data.readers.captions import CaptionedImage
from caption.data.resize import ImageTransform
from caption.data.shards import ShardBatches, ShardIndex, ShardLoader, TrainingShards
from caption.data.shards.writing import write_shards
from tools import make_parser

ROWS = 10
SIDE = 32


def main(args: list[str] | None = None) -> None:
    parser = make_parser("stream_shards", __doc__)
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument(
        "--out", type=Path, required=True, help="folder of the images and shards, kept for a next run"
    )
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args(args)
    shards = options.out / "shards"
    if not (shards / "shards.json").exists():
        write_shards({"train": list(generated(options.samples, options.out / "images"))}, shards)
    index = ShardIndex.read(str(shards))
    batches = ShardBatches(
        index,
        TrainingShards(str(shards), max_damaged=0.0),
        index.vocabulary(1, "ptb"),
        ImageTransform(SIDE, "squash"),
        captions_per_image=None,
        max_words=None,
        batch_size=options.batch_size,
        processes=1,
        rank=0,
        workers=max(options.workers, 1),
        seed=0,
    )
    print("| samples | memory, MB | samples/s |\n|---|---|---|")
    for seen, seconds in epoch(ShardLoader(batches, num_workers=options.workers), index.samples):
        print(f"| {seen:,} | {memory():.0f} | {seen / seconds:,.0f} |", flush=True)


def generated(number: int, folder: Path) -> Iterator[CaptionedImage]:
    """Small photos of noise, with five captions each."""
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for place in range(number):
        path = folder / f"{place // 1000:04d}" / f"{place:08d}.jpg"
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            coarse = random.integers(0, 256, (4, 4, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((SIDE, SIDE)).save(path)
        words = random.integers(0, 5000, (5, 10))
        yield CaptionedImage(
            place, path, tuple(" ".join(f"w{word}" for word in row) for row in words.tolist())
        )


def epoch(loader: ShardLoader, samples: int) -> Iterator[tuple[int, float]]:
    """Reads an epoch; gives the samples and seconds so far, `ROWS` times."""
    began, seen, shown = time.perf_counter(), 0, 0
    for batch in loader:
        seen += len(batch.ids)
        if seen >= (shown + 1) * samples // ROWS:
            shown += 1
            yield seen, time.perf_counter() - began


def memory() -> float:
    """Resident memory of this process and its children in MB; shared pages count in each."""
    own = os.getpid()
    children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
    pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in (own, *children)]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
