"""One run: a mechanism is trained on Shapes with one seed, and measured on the test split."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import torch
from jsonargparse import ActionConfigFile
from torch import nn
from torch.utils.data import DataLoader

import caption
from caption import checkpoint
from caption.analysis.faithfulness.curves import erase
from caption.analysis.faithfulness.rankings import AtRandom, by_attention
from caption.analysis.means import Estimate, difference, estimate
from caption.cli.train import Parser
from caption.data.batches import Batch, CaptionedImages, Example
from caption.data.images import open_image
from caption.data.module import CaptionData
from caption.data.shapes import Shapes
from caption.encoders import Encoder
from caption.errors import UserError
from caption.objectives import Captions
from caption.regions import Views
from caption.result import Caption
from caption.training.evaluation import Answer, Evaluation, summarise
from caption.training.module import CaptionTraining
from tools.compare_attention.mechanisms import BASE, WARM, Mechanism

SHARED = "shapes"
"""The installed model whose encoder is shared."""
ERASED = 100
"""Test scenes whose words have their regions deleted."""
DRAWS = 3
"""Random orders for each word."""

Advance = Callable[[float], None]
"""Called with the share of a run that was just done."""


@dataclass(frozen=True)
class Budget:
    """What all mechanisms get alike."""

    epochs: int
    scenes: int
    """Of the training split."""
    test_scenes: int
    shared_encoder: bool
    """Whether all read the regions of one frozen encoder; else each trains its own from pixels."""


class Bench:
    """Trains and measures mechanisms under one budget. The folder holds scenes, results and checkpoints.

    Args:
        budget: the same for all runs of a folder.
        folder: made if it is not there.
    """

    def __init__(self, budget: Budget, folder: Path) -> None:
        self.budget = budget
        self.folder = folder
        self._splits: dict[str, Split] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def result(self, mechanism: Mechanism, seed: int) -> dict[str, Any] | None:
        """What was measured before; None if it was not, or with other settings of the mechanism.

        Raises:
            UserError: the folder holds results of another budget.
        """
        path = self.path(mechanism, seed)
        if not path.exists() or not self.checkpoint(mechanism, seed).exists():
            return None
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["budget"] != asdict(self.budget):
            raise UserError(
                f"{path} was measured with another budget ({found['budget']}): give the same options, or another "
                "folder with --out"
            )
        return found if found["digest"] == mechanism.digest else None

    def path(self, mechanism: Mechanism, seed: int) -> Path:
        """Of the result of a run."""
        return self.folder / f"{mechanism.name}-{seed}.json"

    def checkpoint(self, mechanism: Mechanism | str, seed: int) -> Path:
        """Of the model that was trained."""
        name = mechanism if isinstance(mechanism, str) else mechanism.name
        return self.folder / f"{name}-{seed}.ckpt"

    def run(self, mechanism: Mechanism, seed: int, advance: Advance = lambda share: None) -> dict[str, Any]:
        """Train, measure, and write the result; the checkpoint comes first, and both are written whole."""
        torch.manual_seed(seed)
        model, data = self._instantiate(mechanism)
        captioner = model.captioner
        if mechanism.warm:
            # As `caption fit` does; the shared encoder's weights are in this checkpoint, too.
            captioner.load_state_dict(checkpoint.load(self.checkpoint(WARM, seed)).state_dict())
        keep = self.budget.shared_encoder and _share(captioner.encoder, self._shared)
        train, test = (self._split(data, split, captioner.encoder, keep) for split in ("train", "test"))
        epochs = mechanism.epochs(self.budget.epochs)
        part = 1 / (epochs + 2)
        clip = mechanism.trainer.get("gradient_clip_val")
        seconds = []
        for took in fit(model, train, epochs, data.batch_size, seed, clip):
            seconds.append(took)
            advance(part)
        evaluation, answers = evaluate(model, data, test)
        advance(part)
        looks = bool(captioner.decoder.attentions)
        result = {
            "mechanism": mechanism.name,
            "seed": seed,
            "digest": mechanism.digest,
            "budget": asdict(self.budget),
            "epochs": epochs,
            "warm_start": WARM if mechanism.warm else None,
            "regions": _regions(captioner.encoder, keep),
            "parameters": sum(each.numel() for each in captioner.parameters() if each.requires_grad),
            "seconds_per_epoch": median(seconds),
            "numbers": evaluation.numbers if looks else _without_maps(evaluation.numbers),
            "signature": evaluation.signature,
            "faithfulness": deletion(model, test, answers) if looks else None,
        }
        advance(part)
        checkpoint.save(captioner, self.checkpoint(mechanism, seed))
        write_json(self.path(mechanism, seed), result)
        return result

    def reader(self) -> Shapes:
        """The scenes, which are written when they are first read."""
        return Shapes(**self._reader_options)

    @property
    def _reader_options(self) -> dict[str, Any]:
        counts = {"train": self.budget.scenes, "val": 1, "test": self.budget.test_scenes}
        return {"folder": str(self.folder / "shapes"), **counts}

    @cached_property
    def _shared(self) -> Encoder:
        encoder = caption.load(SHARED).encoder
        encoder.freeze()
        return encoder

    def _instantiate(self, mechanism: Mechanism) -> tuple[CaptionTraining, CaptionData]:
        """Model and data as `caption fit -c BASE -c OVERLAY` makes them.

        Raises:
            UserError: the configuration cannot be used.
        """
        parser = Parser(prog="caption fit", default_env=False)
        parser.add_argument("-c", "--config", action=ActionConfigFile)
        parser.add_argument("--seed_everything", type=int)
        parser.add_argument("--trainer", type=dict)
        parser.add_lightning_class_args(CaptionTraining, "model")
        parser.add_lightning_class_args(CaptionData, "data")
        for part in ("vocabulary", "transform"):
            parser.link_arguments("data", f"model.{part}", attrgetter(part), apply_on="instantiate")
        arguments = [
            f"--data.reader.init_args.{name}={value}" for name, value in self._reader_options.items()
        ]
        config = parser.parse_args(["-c", str(BASE), "-c", str(mechanism.path), *arguments])
        with warnings.catch_warnings():
            # Newer releases of jsonargparse have another name for it.
            warnings.filterwarnings("ignore", "(?s).*(instantiate_classes|JsonargparseDeprecationWarning)")
            made = parser.instantiate_classes(config)
        return made["model"], made["data"]

    def _split(self, data: CaptionData, split: str, encoder: Encoder, keep: bool) -> Split:
        """A split with its encoder; with `keep`, the encoder is the shared one, and regions are computed once."""
        if split not in self._splits:
            self._splits[split] = Split(data, split)
        found = self._splits[split]
        found.per_image = data.captions_per_image if split == "train" else None
        found.encode_with(encoder, keep)
        return found


class Split(CaptionedImages):
    """A split whose images are decoded once, and stay in memory with their regions.

    Args:
        data: says how images are transformed and captions encoded.
        split: "train" or "test".
    """

    def __init__(self, data: CaptionData, split: str) -> None:
        images = data.splits[split]
        super().__init__(images, data.vocabulary, data.transform, max_words=data.max_words)
        photos = [open_image(image.path) for image in images]
        self.pixels = torch.stack([data.transform(photo) for photo in photos])
        self.image_boxes = [data.transform.box(*photo.size) for photo in photos]
        self.rows = {image.id: row for row, image in enumerate(images)}
        self._regions: Views | None = None

    def example(self, index: int, captions: list[list[int]]) -> Example:
        return Example(self.images[index], None, captions, self.image_boxes[index])

    def encode_with(self, encoder: Encoder, keep: bool) -> None:
        """Set the encoder of all images; with `keep`, their regions are computed at the first call and kept."""
        self._encoder = encoder
        self._keep = keep
        if keep and self._regions is None:
            with torch.no_grad():
                self._regions = encoder.eval()(self.pixels)

    def views(self, batch: Batch) -> Views:
        """The regions of a batch."""
        rows = torch.tensor([self.rows[each] for each in batch.ids])
        if not self._keep:
            return self._encoder(self.pixels[rows])
        assert self._regions is not None
        return tuple(view._replace(vectors=view.vectors[rows]) for view in self._regions)


def fit(
    model: CaptionTraining, scenes: Split, epochs: int, batch_size: int, seed: int, clip: float | None
) -> Iterator[float]:
    """Train; yields the seconds that each epoch took on the processor, which other processes do not lengthen.

    The learning rates fall to 0 along half a cosine, whatever the configuration's own schedule.
    """
    model.scheduler = None
    optimizer: torch.optim.Optimizer = model.configure_optimizers()
    whole = len(scenes) >= batch_size
    steps = epochs * (len(scenes) // batch_size if whole else 1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(steps, 1))
    captioner = model.captioner
    model.train()
    for epoch in range(epochs):
        torch.manual_seed(1000 * seed + epoch)
        clock = time.process_time()
        for batch in DataLoader(scenes, batch_size, shuffle=True, drop_last=whole, collate_fn=scenes.collate):
            memory = captioner.project(scenes.views(batch))
            captions = Captions(batch.inputs, batch.targets, batch.lengths)
            loss = model.objective(captioner.decoder, memory, captions)
            optimizer.zero_grad()
            loss.value.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            scheduler.step()
        yield time.process_time() - clock


@torch.no_grad()
def evaluate(
    model: CaptionTraining, data: CaptionData, scenes: Split, batch_size: int = 50
) -> tuple[Evaluation, list[Answer]]:
    """Captions and scores of a split, as `caption test` computes them."""
    model.eval()
    for number, batch in enumerate(DataLoader(scenes, batch_size, collate_fn=scenes.collate)):
        model.test_step(batch._replace(views=scenes.views(batch)), number)
    answers, model.answers = model.answers, []
    protocol = model.protocol("test", model.captioner.search)
    return summarise(answers, protocol, data.reader.boxes("test")), answers


def deletion(model: CaptionTraining, scenes: Split, answers: Sequence[Answer]) -> dict[str, Any] | None:
    """Area under the deletion curve of every word, in the order of attention and in random orders.

    None if the captions have no words, as after too little training.
    """
    photos = [image.path for image in scenes.images[:ERASED]]
    captions: list[Caption] = [answer.caption for answer in answers[: len(photos)]]
    if not any(each.words for each in captions):
        return None
    orders = {"attention": by_attention, "random": AtRandom(DRAWS)}
    erasure = erase(model.captioner, photos, captions, orders)
    areas = {name: erasure.area("deletion", name) for name in orders}
    return {"images": erasure.images.tolist()} | {
        name: [round(float(value), 5) for value in values] for name, values in areas.items()
    }


def faithfulness(results: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The areas of `deletion` over all words of several seeds, and random less attention with its 95 % interval.

    The bootstrap draws images: the words of an image, of all seeds, stay together. None if nothing was measured.
    """
    found = [each["faithfulness"] for each in results if each["faithfulness"]]
    if not found:
        return None
    images, attention, random = (
        [value for each in found for value in each[name]] for name in ("images", "attention", "random")
    )
    gain = difference(attention, random, images)
    means: list[Estimate] = [estimate(values, images) for values in (attention, random)]
    return {
        "attention": means[0].mean,
        "random": means[1].mean,
        "random_less_attention": gain.difference,
        "low": gain.low,
        "high": gain.high,
    }


def write_json(path: Path, content: Any) -> None:
    """Write a file whole, or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)


def _share(encoder: Encoder, shared: Encoder) -> bool:
    """Load the shared weights into every encoder of the same architecture, and freeze these.

    Returns:
        whether the encoder is now the shared one, with nothing else in it.
    """
    for part in [each for each in encoder.modules() if isinstance(each, Encoder)]:
        if part.spec == shared.spec:
            part.load_state_dict(shared.state_dict())
            part.freeze()
    return encoder.spec == shared.spec


def _regions(encoder: Encoder, shared: bool) -> str:
    """Where the regions come from, for the table."""
    some = any(not parameter.requires_grad for parameter in encoder.parameters())
    return "shared" if shared else "shared and own" if some else "own"


def _without_maps(numbers: dict[str, float]) -> dict[str, float]:
    """The numbers of a decoder without attention: its even maps are placeholders."""
    return {
        name: value for name, value in numbers.items() if not name.startswith(("attention_", "pointing_"))
    }
