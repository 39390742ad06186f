"""A feature store: extraction beside the bare encoder, random reading beside a training step, and opening."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from caption.data.images import open_image

from caption.data.feature_extraction import write_features
from caption.data.readers.captions import CaptionedImage
from caption.features import shards
from caption.features.store import FeatureStore
from caption.objectives import CaptionBatch, CrossEntropy
from caption.regions import Regions
from tools.benchmark import core
from tools.benchmark.harness import Setting, ratio, seconds, spread, take_turns
from tools.benchmark.photos import DESCRIBED, ENCODERS, make_captioner, photos
from tools.documents import table

BATCH = 32
"""Images encoded at once, the default of `caption features`."""
TRAINED = 64
"""Images in a training batch of configs/flickr8k_soft.yaml."""
GRID, SIZE = (7, 7), 1280
"""Of MobileNetV2."""


def features(setting: Setting) -> str:
    """A row for each rate."""
    with tempfile.TemporaryDirectory() as path:
        images, what = photos(2 * BATCH if setting.quick else 4 * BATCH, Path(path, "photos"))
        rows = extraction(images, Path(path), setting)
        rows += [*reading(Path(path), setting), opening(Path(path), setting)]
    return f"{what}.\n\n{table(['', 'median (range)'], rows)}"


def extraction(images: list[CaptionedImage], folder: Path, setting: Setting) -> list[list[str]]:
    """Images per second of the bare encoder and of `caption features`, and the ratio of both."""
    captioner = make_captioner(*ENCODERS[0]).to(setting.device)
    encoder, transform = captioner.encoder, captioner.transform
    pixels = torch.stack([transform(open_image(image.path)) for image in images])
    numbers = count()

    @torch.inference_mode()
    def bare() -> None:
        for batch in pixels.split(BATCH):
            encoder(batch.to(setting.device))

    def extract() -> None:
        store, device = folder / f"store{next(numbers)}", setting.device
        write_features(encoder, transform, images, store, BATCH, device=device, progress=False)

    times = take_turns({"bare": bare, "extract": extract}, setting)
    rates = {name: [len(images) / taken for taken in of] for name, of in times.seconds.items()}
    return [
        ["bare encoder, photos in memory: images/s", spread(rates["bare"], "{:.1f}")],
        ["`caption features`, from files to a store: images/s", spread(rates["extract"], "{:.1f}")],
        ["ratio", ratio(rates["extract"], rates["bare"])],
        ["ratio by CPU time", ratio(times.work["bare"], times.work["extract"])],
    ]


def reading(folder: Path, setting: Setting) -> list[list[str]]:
    """Images per second read at random, from the disk and from memory, and those that training needs."""
    images = 16 * TRAINED if setting.quick else 64 * TRAINED
    write_store(folder / "random", images, GRID, SIZE)
    if hasattr(os, "posix_fadvise"):
        for shard in shards.shard_paths(folder / "random"):
            with open(shard, "rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    store = FeatureStore(folder / "random")
    batches = torch.from_numpy(np.random.default_rng(1).permutation(images)).split(TRAINED)

    def read() -> None:
        for batch in batches:
            store.read_many(batch.tolist())

    times = take_turns({"read": read}, setting)
    again = [images / taken for taken in times.seconds["read"]]
    step = [TRAINED / taken for taken in training_steps(setting)]
    said = f"reading at random, batches of {TRAINED}"
    return [
        [
            f"{said}, first time: from disk, checksums compared: images/s",
            f"{images / times.first['read']:,.0f}",
        ],
        [f"{said}, again: images/s", spread(again, "{:,.0f}")],
        ["a training step of configs/flickr8k_soft.yaml takes: images/s", spread(step, "{:,.0f}")],
    ]


def training_steps(setting: Setting) -> list[float]:
    """Seconds of steps on stored regions, without reading them."""
    model = make_captioner(*ENCODERS[0]).to(setting.device).train()
    vectors = torch.randn(TRAINED, GRID[0] * GRID[1], SIZE).relu().to(setting.device)
    words, targets, lengths = core.make_captions(TRAINED, 5, setting.device, 8, 16)
    captions = CaptionBatch(words % DESCRIBED, targets % DESCRIBED, lengths)
    optimizer = torch.optim.Adam([*model.refiner.parameters(), *model.decoder.parameters()])

    def step() -> None:
        optimizer.zero_grad()
        CrossEntropy()(model.decoder, model.project((Regions(vectors, GRID),)), captions).value.backward()
        optimizer.step()

    return take_turns({"step": step}, setting).seconds["step"]


def opening(folder: Path, setting: Setting) -> list[str]:
    """Seconds to open a large store."""
    images = 10_000 if setting.quick else 1_000_000
    small_store(folder / "million", images)
    times = take_turns({"open": lambda: FeatureStore(folder / "million")}, setting)
    said = f"opening a store of {images:,} images: time, CPU time"
    return [said, ", ".join(spread(of["open"], seconds) for of in (times.seconds, times.work))]


def write_store(
    folder: Path, images: int, grid: tuple[int, int], size: int, key: Mapping[str, Any] | None = None
) -> None:
    """A store of images 0, 1, ... with noise as regions, as `caption features` would write it."""
    noise = np.random.default_rng(0).standard_normal((TRAINED, grid[0] * grid[1], size)).astype(np.float16)
    folder.mkdir(exist_ok=True)
    writer = shards.ShardWriter(folder, {"format": shards.FORMAT, "key": key or {}, "grids": [list(grid)]})
    for start in range(0, images, TRAINED):
        ids = range(start, min(start + TRAINED, images))
        writer.add(ids, [shards.PhotoFile(224, 224, 0)] * len(ids), {"view.0": noise[: len(ids)]})
    writer.save()


def small_store(folder: Path, images: int) -> None:
    """A store of images 0, 1, ... of one number each, in as many shards as if they had 7×7×1280."""
    with mock.patch.object(shards, "SHARD_BYTES", shards.SHARD_BYTES // (GRID[0] * GRID[1] * SIZE)):
        write_store(folder, images, (1, 1), 1)
