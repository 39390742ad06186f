"""From photos to captions: the installed model's encoder, by itself and in `caption describe`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from PIL import Image

from caption.captioner import Captioner
from caption.core.runtime.atomic_files import creating
from caption.data.shapes.render import render
from caption.data.shapes.scene import random_scene
from caption.models.export import onnx_files
from caption.models.model_zoo import load
from tools.benchmark.harness import Setting, say, spread, take_turns
from tools.documents import table

PHOTOS, SIZE = 32, (500, 375)
MODULES, OURS, ONNX = "torch's modules", "ours", "onnxruntime"


def photos(setting: Setting) -> str:
    """A row for each task and form: images per second."""
    captioner = load("photos", setting.device)
    with tempfile.TemporaryDirectory() as folder:
        count = PHOTOS // 8 if setting.quick else PHOTOS
        files = draw(count, Path(folder))
        pixels = torch.stack([captioner.read(file).pixels for file in files])
        encode = torch.no_grad()(lambda: captioner.encoder(pixels.to(setting.device)))
        describe = partial(describe_all, captioner, files)
        runs: dict[tuple[str, str], Callable[[], Any]] = {
            ("encoder", MODULES): partial(as_modules, encode),
            ("encoder", OURS): encode,
            ("photos to captions", MODULES): partial(as_modules, describe),
            ("photos to captions", OURS): describe,
        }
        if setting.device.type == "cpu" and all(map(find_spec, ("onnx", "onnxscript", "onnxruntime"))):
            runs["encoder", ONNX] = onnx_encoder(captioner, pixels, Path(folder), setting.threads)
        say("photos")
        times = take_turns(runs, setting)
    rows = []
    for work, form in runs:
        seconds = times.seconds[work, form]
        row = [
            work,
            form,
            spread((count / time for time in seconds), "{:.1f}"),
            times.row((work, form), (work, MODULES))[1],
        ]
        for reference in (("encoder", OURS), ("encoder", ONNX)):
            base = times.seconds.get(reference)
            pairs = zip(base, seconds, strict=True) if base and reference != (work, form) else ()
            shares = [before / after for before, after in pairs]
            row.append(spread(shares, "{:.0%}") if shares else "")
        rows.append(row)
    return table(["work", "form", "images/s", "times as fast", "of the encoder", "of onnxruntime"], rows)


def draw(count: int, folder: Path) -> list[str]:
    """JPEGs of generated scenes."""
    files = [str(folder / f"{number}.jpg") for number in range(count)]
    for number, file in enumerate(files):
        scene = render(random_scene(0, "train", number, 96))
        with creating(file) as photo:
            scene.resize(SIZE, Image.Resampling.BICUBIC).save(photo, "JPEG", quality=90)
    return files


def describe_all(captioner: Captioner, files: list[str]) -> None:
    """Caption files as `caption describe` does."""
    for caption in captioner.describe_each(files):
        if isinstance(caption, Exception):
            raise caption


def as_modules(run: Callable[[], Any]) -> None:
    """Run with the encoder as it is in training: each of its layers is one operation."""
    with mock.patch("caption.kernels.encoder.inference_form", return_value=None):
        run()


def onnx_encoder(captioner: Captioner, pixels: torch.Tensor, folder: Path, threads: int) -> Callable[[], Any]:
    """The encoder that `caption export` writes, on its fastest batches: single images."""
    from caption.models.export.standalone import OnnxCaptioner

    onnx_files.write(captioner, folder)
    session = OnnxCaptioner(folder, threads=threads).encoder
    images = [image[None] for image in pixels.numpy()]
    return lambda: [session.run(None, {"images": image}) for image in images]
