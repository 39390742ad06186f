"""One run: a mechanism is trained with one seed, and measured on the test split."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from statistics import median
from typing import Any

import torch
from jsonargparse import ActionConfigFile
from torch import nn

from caption import checkpoint
from caption.analysis.faithfulness.curves import erase
from caption.analysis.faithfulness.rankings import AtRandom, by_attention
from caption.analysis.means import Estimate, difference, estimate
from caption.cli.train import Parser
from caption.data.boxes import Boxes
from caption.data.module import CaptionData
from caption.encoders import Encoder
from caption.errors import UserError
from caption.objectives import CaptionBatch
from caption.result import Caption
from caption.runtime.atomic import replacing
from caption.training.evaluation import Answer, Evaluation, summarise
from caption.training.module import CaptionTraining
from tools.compare_attention.data_sets import Budget, DataSet, Split
from tools.compare_attention.mechanisms import WARM, Mechanism

ERASED = 100
"""Test images whose words have their regions deleted."""
DRAWS = 3
"""Random orders for each word."""

Advance = Callable[[float], None]
"""Called with the share of a run that was just done."""


class Bench:
    """Trains and measures mechanisms under one budget. The folder holds results and checkpoints.

    Args:
        budget: the same for all runs of a folder.
        folder: made if it is not there.
        data_set: what they are trained and measured on.
        published: results by mechanism and seed that stand for those which the folder lacks.
    """

    def __init__(
        self,
        budget: Budget,
        folder: Path,
        data_set: DataSet,
        published: Mapping[tuple[str, int], dict[str, Any]] | None = None,
    ) -> None:
        self.budget = budget
        self.folder = folder
        self.data_set = data_set
        self.published = published or {}
        folder.mkdir(parents=True, exist_ok=True)

    def result(self, mechanism: Mechanism, seed: int) -> dict[str, Any] | None:
        """What was measured before; None if it was not, or with other settings of the mechanism.

        Raises:
            UserError: the folder holds results of another budget.
        """
        path = self.path(mechanism, seed)
        if not path.exists() or not self.checkpoint(mechanism, seed).exists():
            there = self.published.get((mechanism.name, seed))
            return there if there and there["digest"] == mechanism.digest else None
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
        train, test, regions = self.data_set.splits(captioner.encoder, data)
        epochs = mechanism.epochs(self.budget.epochs)
        part = 1 / (epochs + 2)
        clip = mechanism.trainer.get("gradient_clip_val")
        seconds = []
        for took in fit(model, train, epochs, seed, clip):
            seconds.append(took)
            advance(part)
        evaluation, answers = evaluate(model, test, self.data_set.boxes(data))
        advance(part)
        looks = bool(captioner.decoder.attentions)
        result = {
            "mechanism": mechanism.name,
            "seed": seed,
            "digest": mechanism.digest,
            "budget": asdict(self.budget),
            "epochs": epochs,
            "warm_start": WARM if mechanism.warm else None,
            "regions": regions,
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

    def prepare(self, mechanisms: Iterable[Mechanism]) -> None:
        """Write what several runs read at the same time. A configuration that cannot be used fails in its run."""

        def made() -> Iterator[tuple[Encoder, CaptionData]]:
            for each in mechanisms:
                with suppress(UserError):
                    model, data = self._instantiate(each)
                    yield model.captioner.encoder, data

        self.data_set.prepare(made())

    def _instantiate(self, mechanism: Mechanism) -> tuple[CaptionTraining, CaptionData]:
        """Model and data as `caption fit -c BASE -c OVERLAY` makes them, without precomputed regions.

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
        files = ["-c", str(mechanism.base), "-c", str(mechanism.path)]
        captions = f"--data.captions_per_image={self.budget.captions_per_image}"
        config = parser.parse_args([*files, *self.data_set.arguments(), captions, "--data.features=null"])
        with warnings.catch_warnings():
            # Newer releases of jsonargparse have another name for it.
            warnings.filterwarnings("ignore", "(?s).*(instantiate_classes|JsonargparseDeprecationWarning)")
            made = parser.instantiate_classes(config)
        return made["model"], made["data"]


def fit(model: CaptionTraining, split: Split, epochs: int, seed: int, clip: float | None) -> Iterator[float]:
    """Train; yields the seconds that each epoch took on the processor, which other processes do not lengthen.

    The learning rates fall to 0 along half a cosine, whatever the configuration's own schedule.
    """
    model.scheduler = None
    optimizer: torch.optim.Optimizer = model.configure_optimizers()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, max(epochs * len(split), 1))
    captioner = model.captioner
    model.train()
    for epoch in range(epochs):
        torch.manual_seed(1000 * seed + epoch)
        clock = time.process_time()
        for batch in split.batches():
            assert batch.views is not None
            memory = captioner.project(batch.views)
            captions = CaptionBatch(batch.inputs, batch.targets, batch.lengths)
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
    model: CaptionTraining, split: Split, boxes: Mapping[int | str, Boxes] | None
) -> tuple[Evaluation, list[Answer]]:
    """Captions and scores of a split, as `caption test` computes them."""
    model.eval()
    for number, batch in enumerate(split.batches()):
        model.test_step(batch, number)
    answers, model.answers = model.answers, []
    return summarise(answers, model.protocol("test", model.captioner.search), boxes), answers


def deletion(model: CaptionTraining, split: Split, answers: Sequence[Answer]) -> dict[str, Any] | None:
    """Area under the deletion curve of every word, in the order of attention and in random orders.

    None if the captions have no words, as after too little training.
    """
    photos = [image.path for image in split.images[:ERASED]]
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
    """Write a file whole, or not at all; lists of numbers are one line each."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    text = re.sub(r"\[[-+.\deE,\s]+\]", lambda found: " ".join(found[0].split()), text)
    with replacing(path) as file:
        file.write(f"{text}\n".encode())


def _without_maps(numbers: dict[str, float]) -> dict[str, float]:
    """The numbers of a decoder without attention: its even maps are placeholders."""
    return {
        name: value for name, value in numbers.items() if not name.startswith(("attention_", "pointing_"))
    }
