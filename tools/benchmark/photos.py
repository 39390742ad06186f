"""From image files: training on photos, and a folder of photos to captions.

The photos are Flickr8k's and the weights MobileNetV2's where the folder `shared` beside the checkout has them, else
generated scenes and random weights. The sections say which.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import torch
from caption.data.images import ImageTransform, open_image
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader

from caption import checkpoint
from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.data.batch_inference import BATCH
from caption.data.batches import Batch, CaptionedImages, SingleCaptions
from caption.data.readers.captions import CaptionedImage
from caption.data.shapes.render import render
from caption.data.shapes.scene import random_scene
from caption.decoders import DeepOutput, Gate, LSTMDecoder
from caption.encoders import LinearRefiner, TorchvisionEncoder
from caption.objectives import CaptionBatch
from caption.search import BeamSearch, Search
from caption.text.vocabulary import Vocabulary
from tools.benchmark import core
from tools.benchmark.harness import HERE, Setting, made_up, ratio, say, take_turns
from tools.benchmark.textbook import textbook_of
from tools.documents import table

SHARED = HERE.parent / "shared"
IMAGES = 16
"""Images in a training batch."""
ENCODERS = (("mobilenet_v2", "features"), ("resnet50", "layer4"))
DESCRIBED, LENGTH = 2543, 12
"""Words of the vocabulary and of a caption, where a folder is described."""
PROGRAM = """
import sys
from caption.cli.main import main
code = main(sys.argv[1:])
from tools.benchmark.harness import resident_peak
print(resident_peak(), file=sys.stderr)
sys.exit(code)
"""


def photos(count: int, folder: Path) -> tuple[list[CaptionedImage], str]:
    """Photos with five captions each, and what they are; generated ones are written to the folder."""
    real = sorted((SHARED / "data" / "flickr8k" / "images").glob("*.jpg"))[:count]
    files = real if len(real) == count else generated(count, folder)
    with Image.open(files[0]) as first:
        size = f"{first.width}×{first.height}"
    source = "photos of Flickr8k" if files is real else "generated scenes"
    texts = made_up(5 * count, parts=(2, 4))
    images = [CaptionedImage(file.stem, file, tuple(islice(texts, 5))) for file in files]
    return images, f"{count:,} {source}, JPEG, {size}"


def generated(count: int, folder: Path, size: tuple[int, int] = (500, 375)) -> list[Path]:
    """Scenes of Shapes in the size of photos, by default Flickr's usual one."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{number:06}.jpg" for number in range(count)]
    for number, path in enumerate(paths):
        scene = render(random_scene(0, "train", number, 96))
        scene.resize(size, Image.Resampling.BICUBIC).save(path, quality=90)
    return paths


def encoder_of(name: str, layer: str) -> TorchvisionEncoder:
    """A model of torchvision; MobileNetV2 with its trained weights where they are at hand."""
    torch.manual_seed(0)
    weights = SHARED / "weights" / "mobilenet_v2_imagenet_features.pth"
    file = str(weights) if name == "mobilenet_v2" and weights.exists() else None
    encoder = TorchvisionEncoder(name, layer, file, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    encoder.load_pretrained()
    return encoder.eval()


# -- training


def images(setting: Setting) -> str:
    """Images with all their captions, and one (image, caption) pair at a time."""
    with tempfile.TemporaryDirectory() as folder:
        found, what = photos(2 * IMAGES if setting.quick else 8 * IMAGES, Path(folder))
        words = Vocabulary.build((text for image in found for text in image.captions), min_count=1)
        dataset = CaptionedImages(found, words, ImageTransform())
        rows = [row for frozen in (True, False) for row in compare_training(dataset, setting, frozen)]
    head = ["encoder", "form", "loading", "per caption", "times as fast", "waiting for data", "loss"]
    return f"{what}.\n\n{table(head, rows)}"


def compare_training(dataset: CaptionedImages, setting: Setting, frozen: bool) -> list[list[str]]:
    """Three rows."""
    state = "frozen" if frozen else "fine-tuned"
    say(f"training from images, encoder {state}")
    forms = Forms(setting.device, frozen)
    together = partial(loader, dataset, dataset.collate)
    difference = forms.difference(next(iter(together())))
    pairs = loader(SingleCaptions(dataset), dataset.collate)
    loops = {
        ("textbook", "same process"): Loop(pairs, forms.textbook_loss, forms),
        ("ours", "same process"): Loop(together(), forms.loss, forms),
        ("ours", "another process"): Loop(together(workers=1), forms.loss, forms),
    }
    times = take_turns({name: loop.step for name, loop in loops.items()}, setting)
    reference = next(iter(loops))
    rows = []
    for name, loop in loops.items():
        times.seconds[name][:] = [taken / loop.captions for taken in times.seconds[name]]  # of one caption
        waiting = f"{statistics.median(loop.waiting[1:]):.0%}"
        loss = "" if name == reference else f"{difference:.0e}"
        rows.append([f"MobileNetV2, {state}", *name, *times.row(name, reference), waiting, loss])
    return rows


def loader(dataset: Any, collate: Callable[..., Batch], workers: int = 0) -> DataLoader[Any]:
    """Shuffled whole batches."""
    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0, "drop_last": True}
    return DataLoader(dataset, IMAGES, shuffle=True, collate_fn=collate, **options)


class Forms(nn.Module):
    """Both forms of a model, with the same weights and one encoder."""

    def __init__(self, device: torch.device, frozen: bool) -> None:
        super().__init__()
        self.device = device
        self.encoder = encoder_of("mobilenet_v2", "features").to(device)
        self.encoder.freeze(frozen)
        self.decoder = core.make_decoder(self.encoder.region_sizes[0], device)
        self.textbook = textbook_of(self.decoder)

    def loss(self, batch: Batch) -> Tensor:
        """Of images with their captions: each image is encoded and projected once."""
        vectors = self.encoder(batch.images.to(self.device))[0].vectors
        return core.caption_loss(self.decoder, vectors, self._captions(batch))

    def textbook_loss(self, batch: Batch) -> Tensor:
        """Of pairs: an image is encoded for each of its captions, the whole batch at once."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.encoder.frozen):
            maps = self.encoder.features(self.encoder.normalise(batch.images.to(self.device)))
        maps = maps[0] if isinstance(maps, tuple) else maps  # of the only view
        vectors = maps.flatten(2).transpose(1, 2).repeat_interleave(batch.inputs.shape[1], 0)
        return self.textbook.loss(vectors, *(each.flatten(0, 1) for each in self._captions(batch)))

    def _captions(self, batch: Batch) -> CaptionBatch:
        return CaptionBatch(*(each.to(self.device) for each in (batch.inputs, batch.targets, batch.lengths)))

    @torch.no_grad()
    def difference(self, batch: Batch) -> float:
        """The relative difference of the two losses of one batch."""
        expected = self.textbook_loss(batch)
        return float(abs(self.loss(batch) - expected) / expected)


class Loop:
    """Training without an optimizer; notes the share of each step that passes until the batch is there."""

    def __init__(self, batches: DataLoader[Any], loss: Callable[[Batch], Tensor], forms: Forms) -> None:
        self.batches = chain.from_iterable(repeat(batches))
        self.loss = loss
        self.forms = forms
        self.captions = 0
        self.waiting: list[float] = []

    def step(self) -> None:
        """One batch forward and backward."""
        started = time.perf_counter()
        batch = next(self.batches)
        waited = time.perf_counter() - started
        self.forms.zero_grad()
        self.loss(batch).backward()
        self.captions = int((batch.lengths > 0).sum())
        self.waiting.append(waited / (time.perf_counter() - started))


# -- a folder


def folder(setting: Setting) -> str:
    """Rates from photo to caption beside the encoder's, and the memory of `caption describe`."""
    rows = []
    with tempfile.TemporaryDirectory() as path:
        found, what = photos(BATCH if setting.quick else 2 * BATCH, Path(path) / "photos")
        paths = [image.path for image in found]
        small, large = ENCODERS
        cases = [(small, 5), (small, 1), (large, 5)]
        for encoder, beam in cases[:2] if setting.quick else cases:
            say(f"folder: {encoder[0]}, beam {beam}")
            captioner = make_captioner(*encoder).to(setting.device)
            few = paths if encoder is small else paths[:BATCH]  # the larger encoder takes longer
            measured = rates(captioner, few, BeamSearch(beam, LENGTH), setting)
            rows.append([encoder[0], f"beam {beam}", *measured])
        peaks = memory(Path(path), paths, setting)
    head = ["encoder", "search", "encoder alone", "photo to caption", "of it", "by CPU time"]
    peak = f"`caption describe FOLDER --format jsonl` held at most {peaks}."
    return f"{what}.\n\n{table([*head, 'decoding', 'searching'], rows)}\n\n{peak}"


def make_captioner(name: str, layer: str) -> Captioner:
    """The decoder of configs/flickr8k_soft.yaml behind an encoder; untrained."""
    attention = ScoredAttention(AdditiveScore(256), Softmax())
    decoder = LSTMDecoder(attention, 256, 512, gate=Gate(), readout=DeepOutput())
    words = Vocabulary([f"word{i}" for i in range(DESCRIBED - 4)])
    transform, refiner = ImageTransform(224, "squash"), LinearRefiner(512)
    return Captioner(encoder_of(name, layer), decoder, words, transform, refiner=refiner).eval()


def rates(captioner: Captioner, paths: list[Path], search: Search, setting: Setting) -> list[str]:
    """Images per second, and ratios of clock and CPU times, round by round."""
    batches = torch.stack([captioner.transform(open_image(path)) for path in paths]).split(BATCH)

    @torch.no_grad()
    def encoded() -> list[Any]:
        return [captioner.encoder(batch.to(setting.device)) for batch in batches]

    regions = encoded()
    forms: dict[str, Callable[[], Any]] = {
        "alone": encoded,
        "stream": lambda: list(captioner.describe_each(paths, search)),
        "decoding": lambda: [captioner.transform(open_image(path)) for path in paths],
        "searching": lambda: [captioner.generate(each, search) for each in regions],
    }
    times = take_turns(forms, setting, min(3, setting.rounds))
    alone, stream = (f"{len(paths) / times.median(name):.1f}" for name in ("alone", "stream"))
    pairs = [("alone", "stream", times.seconds), ("alone", "stream", times.work)]
    pairs += [("decoding", "alone", times.work), ("searching", "alone", times.work)]
    ratios = [ratio(of[one], of[other], bold=of is times.seconds) for one, other, of in pairs]
    return [alone, stream, *ratios]


def memory(path: Path, files: list[Path], setting: Setting) -> str:
    """The peak memory of the command for few photos and for many."""
    captioner = make_captioner(*ENCODERS[0])
    captioner.search = BeamSearch(1, LENGTH)
    checkpoint.save(captioner, path / "model.ckpt")
    found = []
    for count in (BATCH, 2 * BATCH) if setting.quick else (2 * BATCH, 10 * BATCH):
        say(f"folder: memory at {count} photos")
        many = path / f"{count}"
        many.mkdir()
        for number in range(count):
            (many / f"{number:06}.jpg").symlink_to(files[number % len(files)])
        command = ["describe", str(many), "--model", str(path / "model.ckpt"), "--format", "jsonl"]
        command = [sys.executable, "-c", PROGRAM, *command, "--device", str(setting.device)]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        assert len(ran.stdout.splitlines()) == count
        found.append(f"{int(ran.stderr.splitlines()[-1]) / 1e6:,.0f} MB for {count:,} photos")
    return ", ".join(found)
