"""Measure a feature store: extraction beside the bare encoder, random reading beside a training step, opening.

    python tools/benchmark_features.py --data DATA --weights FILE [--photos 128] [--rounds 5] [--beside CHECKOUT]
        [--write docs/features.md]

DATA is the folder that tools/prepare_flickr8k.py lays out; encoder and model are those of configs/flickr8k_soft.yaml.
The bare encoder and extraction take turns on the same photos in one process, so that other work on the machine slows
both; compare the ratios of their rates. On a busy machine the ratio of CPU times is more reliable. With
OMP_NUM_THREADS=1 no thread spends CPU time on waiting for another. --beside runs the same tool of another checkout,
with its own package, before and after this one, and prints its two results in further columns.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

CONFIG = Path(__file__).resolve().parents[1] / "configs" / "flickr8k_soft.yaml"
BATCH = 32  # images encoded at once, the default of `caption features`
TRAINED = 64  # images in a training batch, as in the configuration
BEGIN, END = "<!-- measured by tools/benchmark_features.py: -->", "<!-- end of what was measured -->"


def main(args: list[str] | None = None) -> int:
    """Measure, print a table, and write it into a document if asked to."""
    args = sys.argv[1:] if args is None else args
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--data", metavar="DIR", required=True, help="folder of Flickr8k")
    parser.add_argument(
        "--weights", metavar="FILE", required=True, help="MobileNetV2's, of the configuration"
    )
    parser.add_argument("--photos", metavar="N", type=int, default=128, help="to extract in a round")
    parser.add_argument("--rounds", metavar="N", type=int, default=5)
    parser.add_argument("--beside", metavar="DIR", type=Path, help="another checkout to measure, too")
    parser.add_argument(
        "--write", metavar="FILE", type=Path, help="document with the two marks to write between"
    )
    options = parser.parse_args(args)
    load = os.getloadavg()[0]
    others = [of_checkout(options)] if options.beside else []
    with tempfile.TemporaryDirectory() as folder:
        rows = [
            *extraction(options.data, options.weights, options.photos, options.rounds, Path(folder)),
            *reading(options.data, options.weights, Path(folder)),
            opening(Path(folder)),
        ]
    others += [of_checkout(options)] if options.beside else []
    rows = [(what, " | ".join([figure, *(other.get(what, "") for other in others)])) for what, figure in rows]
    text = report(rows, f"load average {load:.1f} before and {os.getloadavg()[0]:.1f} after")
    print(text)
    if options.write:
        put_into(options.write, text)
    return 0


def of_checkout(options: argparse.Namespace) -> dict[str, str]:
    """The figures, by row, that the tool of another checkout prints."""
    tool = options.beside.resolve() / "tools" / "benchmark_features.py"
    given = {"--data": options.data, "--weights": options.weights}
    counts = {"--photos": options.photos, "--rounds": options.rounds}
    words = [str(word) for pair in {**given, **counts}.items() for word in pair]
    environment = {**os.environ, "PYTHONPATH": str(options.beside.resolve())}
    printed = subprocess.run(
        [sys.executable, tool, *words], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    lines = [line.strip("| ").split(" | ") for line in printed.stdout.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1] for cells in lines if len(cells) == 2}


def extraction(data: str, weights: str, photos: int, rounds: int, folder: Path) -> list[tuple[str, str]]:
    """Rows: the bare encoder's images per second, those of `caption features`, and their ratio."""
    import torch

    from caption.data.images import open_image
    from caption.extraction import write_features

    encoder, transform, images = parts(data, weights)
    images = images[:photos]
    pixels = torch.stack([transform(open_image(image.path)) for image in images])

    @torch.inference_mode()
    def bare(number: int) -> None:
        for start in range(0, len(pixels), BATCH):
            encoder(pixels[start : start + BATCH])

    def extracted(number: int) -> None:
        store = folder / f"store{number}"
        write_features(encoder, transform, images, store, batch_size=BATCH, progress=False)

    encoder.eval()
    bare(0)  # the first run of a network sets it up
    times: dict[Callable[[int], None], list[tuple[float, float]]] = {bare: [], extracted: []}
    for number in range(rounds):
        for measured in (bare, extracted) if number % 2 else (extracted, bare):
            times[measured].append(seconds(measured, number))
            print(f"round {number + 1}: {measured.__name__} {times[measured][-1][0]:.1f} s", file=sys.stderr)
    pairs = list(zip(times[bare], times[extracted], strict=True))
    wall, work = ([one[k] / other[k] for one, other in pairs] for k in (0, 1))

    def rate(measured: Callable[[int], None]) -> str:
        found = sorted(photos / wall for wall, _ in times[measured])
        return f"{statistics.median(found):.1f} ({found[0]:.1f} to {found[-1]:.1f})"

    return [
        (f"bare encoder, {photos} photos in memory: images/s, median of {rounds} rounds (range)", rate(bare)),
        ("`caption features` from the same photos' files to a store: images/s", rate(extracted)),
        ("ratio, median of the rounds (range)", f"{share(wall)}"),
        ("ratio by CPU time (range)", f"{share(work)}"),
    ]


def share(ratios: list[float]) -> str:
    """Ratios as percentages: their median and their range."""
    return f"{statistics.median(ratios):.0%} ({min(ratios):.0%} to {max(ratios):.0%})"


def reading(data: str, weights: str, folder: Path) -> list[tuple[str, str]]:
    """Rows: images per second read at random, from the disk and from memory, and what a training step takes."""
    from caption.features.shards import FORMAT, PhotoFile, ShardWriter
    from caption.features.store import FeatureStore

    count = 4096
    regions = np.random.default_rng(0).standard_normal((64, 49, 1280)).astype(np.float16)
    path = folder / "random"
    path.mkdir()
    writer = ShardWriter(path, {"format": FORMAT, "key": {}, "grids": [[7, 7]]})
    for start in range(0, count, len(regions)):
        ids = range(start, start + len(regions))
        writer.add(ids, [PhotoFile(224, 224, 0)] * len(regions), {"view.0": regions})
    writer.save()
    if hasattr(os, "posix_fadvise"):
        for shard in path.glob("shard-*"):
            with open(shard, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    order = np.random.default_rng(1).permutation(count).tolist()
    store = FeatureStore(path)

    def read(number: int) -> None:
        for start in range(0, count, TRAINED):
            store.read_many(order[start : start + TRAINED])

    first, again = (count / seconds(read, number)[0] for number in range(2))
    need = TRAINED / training_step(data, weights)
    return [
        (
            f"reading at random, batches of {TRAINED}, first time: from disk, checksums compared: images/s",
            f"{first:,.0f}",
        ),
        ("reading at random, again: images/s", f"{again:,.0f}"),
        (f"a training step of configs/{CONFIG.name} takes: images/s", f"{need:,.0f}"),
    ]


def training_step(data: str, weights: str) -> float:
    """Seconds of one step on stored regions, without reading them: median of five."""
    import torch
    from caption.encoders.refine import Refiner

    from caption.cli.configuration import read_configuration
    from caption.data.batches import Batch, CaptionedImages
    from caption.decoders.base import Decoder
    from caption.encoders import Regions
    from caption.objectives import Objective
    from caption.parts import make
    from caption.text.vocabulary import Vocabulary
    from caption.training.module import CaptionTraining

    config = read_configuration(str(CONFIG))
    encoder, transform, images = parts(data, weights)
    words = Vocabulary.build((text for image in images for text in image.captions), min_count=5)
    made = [
        make(config["model"][name], kind)
        for name, kind in (("decoder", Decoder), ("refiner", Refiner), ("objective", Objective))
    ]
    decoder, refiner, objective = made
    model: Any = CaptionTraining(encoder, decoder, words, transform, refiner=refiner, objective=objective)
    optimizer = torch.optim.Adam(p for p in model.parameters() if p.requires_grad)
    dataset = CaptionedImages(images, words, transform)
    examples = [dataset[i] for i in range(TRAINED)]
    batch: Batch = dataset.collate(examples)._replace(
        images=None, views=(Regions(torch.randn(TRAINED, 49, 1280).relu(), (7, 7)),)
    )

    def step(number: int) -> None:
        optimizer.zero_grad()
        model.training_step(batch, 0).backward()
        optimizer.step()

    step(0)
    return statistics.median(seconds(step, number)[0] for number in range(5))


def opening(folder: Path) -> tuple[str, str]:
    """Row: seconds to open a store of a million images: the fastest of five."""
    from caption.features.store import FeatureStore

    count = 1_000_000
    small_store(folder / "million", count)
    found = [seconds(lambda number: FeatureStore(folder / "million"), number) for number in range(5)]
    clock, work = (min(each[k] for each in found) for k in (0, 1))
    return f"opening a store of {count:,} images: seconds (of CPU time)", f"{clock:.2f} ({work:.2f})"


def small_store(folder: Path, count: int) -> None:
    """A store of images 0, 1, ... of one number each, in as many shards as if they had 7×7×1280."""
    from caption.features import shards

    folder.mkdir(exist_ok=True)
    held = -(-shards.SHARD_BYTES // (7 * 7 * 1280 * 2))
    header = {"format": shards.FORMAT, "key": {}, "grids": [[1, 1]]}
    for number, start in enumerate(range(0, count, held)):
        ids = range(start, min(start + held, count))
        photos = np.full((len(ids), 3), 224, np.uint64)
        path = folder / f"shard-{number:05d}.safetensors"
        shards.write_shard(path, header, ids, photos, {"view.0": np.zeros((len(ids), 1, 1), np.float16)})


def parts(data: str, weights: str) -> tuple[Any, Any, list[Any]]:
    """Encoder, transform and images of the configuration, pointed to the data."""
    from caption.cli.configuration import make_encoder, make_reader, make_transform, read_parts

    folder = Path(data).expanduser()
    splits = {"train": "train", "val": "dev", "test": "test"}
    files = {split: str(folder / f"Flickr_8k.{name}Images.txt") for split, name in splits.items()}
    overrides = [
        f"--data.reader.captions={folder / 'Flickr8k.token.txt'}",
        f"--data.reader.images={folder / 'images'}",
        f"--data.reader.splits={json.dumps(files)}",
        f"--model.encoder.weights={weights}",
    ]
    found = read_parts([str(CONFIG)], overrides)
    images = [image for split in make_reader(found).read().values() for image in split]
    return make_encoder(found), make_transform(found), images


def seconds(measured: Callable[[int], Any], number: int) -> tuple[float, float]:
    """Seconds by the clock, and of processors' time, that `measured(number)` takes."""
    clock, work = time.perf_counter(), time.process_time()
    measured(number)
    return time.perf_counter() - clock, time.process_time() - work


def report(rows: list[tuple[str, str]], load: str) -> str:
    """The rows as a table in Markdown, with machine and versions above it."""
    import PIL
    import torch

    processors = f"{cpu()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads"
    machine = f"{platform.system()} {platform.machine()}, {processors}"
    versions = f"Python {platform.python_version()}, torch {torch.__version__}, Pillow {PIL.__version__}"
    table = "\n".join(f"| {what} | {figure} |" for what, figure in rows)
    titles = ["", "this checkout", "the other, before", "the other, after"][: rows[0][1].count(" | ") + 2]
    titles = titles if len(titles) > 2 else ["", ""]
    head = f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|"
    return f"{machine}; {versions}; {load}.\n\n{head}\n{table}"


def cpu() -> str:
    """The processor's name, where the system tells it."""
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1] if found else platform.processor() or "unknown processor"


def put_into(document: Path, text: str) -> None:
    """Replace what stands between the two marks of a document."""
    whole = document.read_text(encoding="utf-8")
    if BEGIN not in whole or END not in whole:
        raise SystemExit(
            f"'{document}' has not the two marks, {BEGIN} and {END}: write them where the table belongs"
        )
    before, _, rest = whole.partition(BEGIN)
    document.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
