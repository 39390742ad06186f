"""From photos to captions, part by part: decoding, resizing, encoder, search, and what a GPU could take over."""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from caption.captioner import BATCH, LIKELIEST
from caption.core.runtime.atomic_files import replacing
from caption.data.photos import FittedPhoto, ImageTransform, open_image
from caption.models.model_zoo import load
from tools.benchmark.harness import Setting, clock, say, seconds
from tools.benchmark.photos import describe_all, draw
from tools.documents import table

PHOTOS = 2000
TOLERANCE = 1
"""Largest difference of a pixel, of 255, between `resized` and Pillow: where rows are enlarged more than columns,
Pillow 13 resizes rows first."""
FIXED = 1 << 22
"""Pillow's weights are whole numbers of this part."""


def parts(setting: Setting) -> str:
    """A row for each part: its time for all photos, one after the other."""
    captioner = load("photos", setting.device).eval()
    on_gpu = setting.device.type == "cuda"
    # Two megabytes a photo, decoded.
    count = 16 if setting.quick else PHOTOS if on_gpu else 64
    size = min(BATCH, count)
    workers = min(16, os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as threads:
        different = draw(min(count, 64), Path(folder))
        files = (different * math.ceil(count / len(different)))[:count]
        images = list(threads.map(open_image, files[:size]))
        fitted = list(threads.map(captioner.read, files[:size]))
        batch = [fitted[number % len(fitted)] for number in range(size)]
        views = captioner.encode(batch)
        hypotheses = captioner.generate(views, likeliest=LIKELIEST)
        batches = count / size
        seen: Any = ([photo.box for photo in batch], [photo.photo for photo in batch])
        transform = captioner.transform
        pixels = [pixels_of(image) for image in images]
        # Seconds of a call, and how often it is called.
        runs: dict[str, tuple[Callable[[], Any], float]] = {
            f"decoding, {workers} threads": (lambda: list(threads.map(open_image, files)), 1),
            f"decoding and resizing, {workers} threads": (
                lambda: list(threads.map(captioner.read, files)),
                1,
            ),
            "resizing, one thread": (lambda: list(map(transform, images)), count / len(images)),
            "pixels to the device": (lambda: stacked(batch).to(setting.device), batches),
            "encoder": (lambda: captioner.encode(batch), batches),
            "search": (lambda: captioner.generate(views, likeliest=LIKELIEST), batches),
            "hypotheses to captions": (
                lambda: list(captioner.captions(hypotheses, captioner.grids(views), *seen)),
                batches,
            ),
            "photos to captions": (partial(describe_all, captioner, files), 1),
            "resizing on the device": (
                lambda: [resized(image.to(setting.device), transform) for image in pixels],
                count / len(images),
            ),
        }
        notes = [
            f"Resizing on the device differs from Pillow by at most {apart(pixels, fitted, transform)} of 255."
        ]
        if on_gpu:
            found = decoded_on(setting.device, files[: len(images)])
            notes.append(found if isinstance(found, str) else difference(found, pixels))
            if not isinstance(found, str):
                runs["decoding on the GPU"] = (
                    lambda: decoded_on(setting.device, files[: len(images)]),
                    count / len(images),
                )
        times = {}
        for name, (run, often) in runs.items():
            say(name)
            run()
            times[name] = [often * clock(run, setting.device) for _ in range(setting.rounds)]
    if setting.json is not None:
        with replacing(setting.json) as file:
            file.write(json.dumps({"photos": count, "seconds": times, "notes": notes}, indent=1).encode())
    rows = [
        [name, seconds(statistics.median(of)), f"{count / statistics.median(of):.0f}"]
        for name, of in times.items()
    ]
    return "\n\n".join([table([f"{count} photos", "time", "images/s"], rows), *notes])


def stacked(photos: Sequence[FittedPhoto]) -> Tensor:
    return torch.stack([photo.pixels for photo in photos])


def pixels_of(image: Any) -> Tensor:
    """(3, H, W) uint8."""
    import numpy as np

    return torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy())


# -- resizing ------------------------------------------------------------------------------------------------------


def resized(pixels: Tensor, transform: ImageTransform) -> Tensor:
    """The pixels that a transform makes of a photo, by two matrix products on any device; without padding.

    As in Pillow, edges are in single precision, and columns are resized first and rounded to whole numbers.

    Args:
        pixels: (3, H, W) uint8, less than three times as large as the output, so that nothing is reduced before.
        transform: that does not pad.

    Returns:
        (3, h, w) uint8, equal to Pillow's to `TOLERANCE`.
    """
    height, width = pixels.shape[1:]
    left, top, right, bottom = torch.tensor(transform.box(width, height)).tolist()
    device = pixels.device
    columns = bilinear(left, right, width, transform.width, device)
    rows = bilinear(top, bottom, height, transform.height, device)
    # Halves are rounded up. Double precision holds the sums of Pillow's whole numbers exactly.
    across = (pixels.double() @ columns.T + 0.5).floor_().clamp_(0, 255)
    return (rows @ across + 0.5).floor_().clamp_(0, 255).to(torch.uint8)


@cache
def bilinear(start: float, end: float, inputs: int, outputs: int, device: torch.device) -> Tensor:
    """(outputs, inputs) weights of Pillow's antialiased bilinear filter between two edges of a side."""
    scale = (end - start) / outputs
    support = max(scale, 1.0)
    centers = start + (torch.arange(outputs, dtype=torch.float64) + 0.5) * scale
    first = (centers - support + 0.5).floor().clamp(min=0)[:, None]
    last = (centers + support + 0.5).floor().clamp(max=inputs)[:, None]
    places = torch.arange(inputs, dtype=torch.float64)
    weights = (1 - ((places + 0.5 - centers[:, None]) / support).abs()).clamp(min=0)
    weights = weights.where((places >= first) & (places < last), 0.0)
    weights /= weights.sum(1, keepdim=True)
    return ((weights * FIXED + 0.5).floor() / FIXED).to(device)


def apart(pixels: Sequence[Tensor], fitted: Sequence[FittedPhoto], transform: ImageTransform) -> int:
    """The largest difference of a resized pixel from Pillow's."""
    pairs = zip(pixels, fitted, strict=True)
    return max(int((resized(one, transform).int() - other.pixels.int()).abs().max()) for one, other in pairs)


# -- decoding ------------------------------------------------------------------------------------------------------


def decoded_on(device: torch.device, files: Sequence[str]) -> list[Tensor] | str:
    """JPEGs decoded by torchvision on a GPU; the reason if it cannot."""
    try:
        from torchvision import io

        data = [io.read_file(file) for file in files]
        return io.decode_jpeg(data, io.ImageReadMode.RGB, device=device)
    except Exception as error:
        return f"torchvision does not decode on this GPU: {error}".partition("\n")[0]


def difference(found: Sequence[Tensor], pixels: Sequence[Tensor]) -> str:
    """How far decoded pixels are from Pillow's."""
    gaps = torch.cat(
        [(one.cpu().int() - other.int()).abs().flatten() for one, other in zip(found, pixels, strict=True)]
    )
    return (
        f"Pixels decoded on the GPU differ from Pillow's by {gaps.float().mean():.2f} of 255 on average, at most "
        f"{int(gaps.max())}."
    )
