"""Training from image files: images with all their captions, and one (image, caption) pair at a time."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from benchmark_photos import encoder_of, photos
from speed_common import VOCABULARY, Setting, make_decoder, say, seconds, table, take_turns
from textbook import textbook_of
from torch import Tensor
from torch.utils.data import DataLoader

from caption.data.batches import Batch, CaptionedImages, SingleCaptions
from caption.data.images import ImageTransform
from caption.encoders import TorchvisionEncoder
from caption.objectives import CrossEntropy
from caption.objectives.base import Captions
from caption.text.vocabulary import Vocabulary

IMAGES = 16
HEAD = ["encoder", "form", "loading", "per caption", "times as fast", "waiting for data", "loss"]


def measure(setting: Setting) -> list[str]:
    """Markdown lines."""
    with tempfile.TemporaryDirectory() as folder:
        images, what = photos(2 * IMAGES if setting.quick else 8 * IMAGES, Path(folder))
        words = Vocabulary.build((text for image in images for text in image.captions), min_count=1)
        dataset = CaptionedImages(images, words, ImageTransform())
        rows = [*compare(dataset, setting, frozen=True), *compare(dataset, setting, frozen=False)]
    return [
        "## Training from images",
        "",
        f"{what}; five captions of 8 to 16 words each. MobileNetV2 (L 49, D 1,280), V {VOCABULARY:,}; embedding,",
        "LSTM and attention 512. Reading, decoding, encoding, forward and backward; no step of an optimizer.",
        f"The textbook takes {IMAGES} pairs of an image and a caption at a time, ours {IMAGES} images with all",
        "captions. *Waiting for data*: share of the time in which the encoder has no images, since they are still",
        "being decoded (in the process that trains, or in one of its own). *Loss*: relative difference of the two",
        "losses of one batch.",
        "",
        *table(HEAD, rows),
    ]


def compare(dataset: CaptionedImages, setting: Setting, frozen: bool) -> list[list[str]]:
    """Three rows."""
    state = "frozen" if frozen else "fine-tuned"
    say(f"training from images, encoder {state}")
    forms = Forms(setting.device, frozen)
    difference = forms.difference(next(iter(loader(dataset, dataset.collate, 0))))
    pairs = loader(SingleCaptions(dataset), dataset.collate, 0)
    loops = {
        "textbook": Loop(pairs, forms.textbook_loss, forms),
        "ours": Loop(loader(dataset, dataset.collate, 0), forms.loss, forms),
        "ours, another process": Loop(loader(dataset, dataset.collate, 1), forms.loss, forms),
    }
    times = take_turns({name: loop.step for name, loop in loops.items()}, setting)
    rows = []
    for name, loop in loops.items():
        per_caption = [taken / loop.captions for taken in times.seconds[name]]
        theirs = [taken / loops["textbook"].captions for taken in times.seconds["textbook"]]
        ratios = sorted(a / b for a, b in zip(theirs, per_caption, strict=True))
        faster = f"**{statistics.median(ratios):.1f}** ({ratios[0]:.1f} to {ratios[-1]:.1f})"
        waiting = statistics.median(loop.waiting[1:])
        form, _, process = name.partition(", ")
        rows.append(
            [
                f"MobileNetV2, {state}",
                form,
                process or "same process",
                seconds(statistics.median(per_caption)),
                "1" if name == "textbook" else faster,
                f"{waiting:.0%}",
                "" if name == "textbook" else f"{difference:.0e}",
            ]
        )
    return rows


def loader(dataset: Any, collate: Callable[..., Batch], workers: int) -> DataLoader[Any]:
    """Shuffled batches."""
    return DataLoader(
        dataset, IMAGES, shuffle=True, collate_fn=collate, num_workers=workers, persistent_workers=workers > 0
    )


class Forms:
    """Both forms of a model, with the same weights and one encoder."""

    def __init__(self, device: torch.device, frozen: bool) -> None:
        self.device = device
        self.encoder: TorchvisionEncoder = encoder_of("mobilenet_v2", "features").to(device)
        self.encoder.freeze(frozen)
        self.decoder = make_decoder(self.encoder.region_size, device)
        self.textbook = textbook_of(self.decoder)
        self.objective = CrossEntropy()

    def loss(self, batch: Batch) -> Tensor:
        """Of images with their captions: each encoded and projected once."""
        assert batch.images is not None
        regions = self.encoder(batch.images.to(self.device)).vectors
        return self._objective(regions, batch)

    def _objective(self, regions: Tensor, batch: Batch) -> Tensor:
        captions = Captions(*(each.to(self.device) for each in (batch.inputs, batch.targets, batch.lengths)))
        return self.objective(self.decoder, self.decoder.project(regions), captions).value

    def textbook_loss(self, batch: Batch) -> Tensor:
        """Of pairs: an image is encoded for each of its captions, the whole batch at once."""
        assert batch.images is not None
        encoder = self.encoder
        with torch.set_grad_enabled(not encoder.frozen):
            maps = encoder.features(encoder.normalise(batch.images.to(self.device)))
        return self._textbook(maps.flatten(2).transpose(1, 2), batch)

    def _textbook(self, regions: Tensor, batch: Batch) -> Tensor:
        """Regions (B, L, D), which every caption (B, K) gets a copy of."""
        captions = batch.inputs.shape[1]
        flat = (each.flatten(0, 1).to(self.device) for each in (batch.inputs, batch.targets, batch.lengths))
        return self.textbook.loss(regions.repeat_interleave(captions, 0), *flat)

    def difference(self, batch: Batch) -> float:
        """How far the losses of one batch lie apart, relative to the textbook's."""
        assert batch.images is not None
        with torch.no_grad():
            regions = self.encoder(batch.images.to(self.device)).vectors
            expected = self._textbook(regions, batch)
            return float(abs(self._objective(regions, batch) - expected) / expected)

    def forget(self) -> None:
        """No gradients."""
        for module in (self.encoder, self.decoder, self.textbook):
            module.zero_grad()


class Loop:
    """Training without an optimizer; notes which share of each step went by until the batch was there."""

    def __init__(self, batches: DataLoader[Any], loss: Callable[[Batch], Tensor], forms: Forms) -> None:
        self.batches = forever(batches)
        self.loss = loss
        self.forms = forms
        self.captions = 0
        self.waiting: list[float] = []

    def step(self) -> None:
        """One batch forward and backward."""
        started = time.perf_counter()
        batch: Batch = next(self.batches)
        there = time.perf_counter()
        self.forms.forget()
        self.loss(batch).backward()
        self.captions = int((batch.lengths > 0).sum())
        self.waiting.append((there - started) / (time.perf_counter() - started))


def forever(batches: DataLoader[Any]) -> Iterator[Batch]:
    """One epoch after another, whole batches only."""
    while True:
        for batch in batches:
            if len(batch.ids) == IMAGES:
                yield batch
