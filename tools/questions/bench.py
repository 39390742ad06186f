"""Trained models and test sentences for the questions.

All models of a question read the regions of one frozen encoder, that of the installed model `shapes`, so that they
differ in their decoders alone and train in a minute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes

from caption import checkpoint
from caption.analysis.covered_cells import coverage
from caption.analysis.replay import Replay, Sentences, sentences
from caption.box import BoxLike
from caption.captioner import Captioner
from caption.cli.configuration.parts import read_parts
from caption.data.boxes import Boxes
from caption.data.shapes import Shapes
from caption.decoders.base import Decoder
from caption.encoders import Encoder, Refiner
from caption.metrics.significance import Estimate
from caption.models.model_zoo import load
from caption.parts import make
from caption.regions import Grid
from caption.result import Caption
from caption.runtime.files import make_parents
from caption.text.mentions import find_mentions
from caption.visualize.figure_file import NotebookFigure
from tools.reproduce.runs import CONFIGS, fit, run

ENCODER = "shapes"
"""The installed model whose encoder is shared."""
BASE = CONFIGS / "shapes_soft.yaml"
EPOCHS = 4
SHORT = (
    f"--trainer.max_epochs={EPOCHS}",
    f"--model.scheduler.init_args.T_max={EPOCHS}",
    "--data.captions_per_image=1",
)
"""A training of four epochs with one caption for each image."""
SIDE = 64
"""Of a scene, in pixels."""
FROZEN = ("--model.encoder_learning_rate=null",)


class Answer(NamedTuple):
    """What the document says of a question."""

    text: str
    """Markdown."""
    figure: NotebookFigure


class Sentence(NamedTuple):
    """A caption of a scene that names an object, a relation and another object: "a red circle above a blue square"."""

    photo: str
    image: int
    """Number of the scene, for intervals over scenes."""
    words: list[str]
    subject: int
    """Step of the shape of the object that is named first; its colour is a step before, the relation a step after."""
    object: int
    """Step of the shape of the other object."""
    boxes: Boxes
    """Of all objects of the scene, by name."""

    @property
    def relation(self) -> int:
        """The step that decides the relation: "above", "below", or "to" of "to the left of"."""
        return self.subject + 1

    def box(self, step: int) -> BoxLike:
        """The box of the object whose shape is named at a step."""
        (box,) = self.boxes[" ".join(self.words[step - 1 : step + 1])]
        return box


class Bench:
    """Trains models into a folder, or finds them there.

    Args:
        folder: of the trainings and of the scenes.
        more: further arguments of `caption fit`, the same for all.
    """

    def __init__(self, folder: Path, more: Sequence[str] = ()) -> None:
        self.folder = folder
        make_parents(folder / "shapes")
        self.reader = Shapes(str(folder / "shapes"))
        self.more = ["--data.reader.init_args.folder", str(folder / "shapes"), *more]

    def trained(
        self,
        mechanism: str,
        seed: int,
        arguments: Sequence[str] = SHORT,
        encoder: Encoder | None = None,
        name: str | None = None,
        start: Path | None = None,
    ) -> Captioner:
        """A mechanism of configs/attention, trained on the regions of a frozen encoder.

        Args:
            mechanism: the name of its configuration.
            seed: of weights and training.
            arguments: further ones of `caption fit`.
            encoder: with its weights; None = that of `ENCODER`, whose regions are stored.
            name: of the folder, with the seed; None = the mechanism.
            start: a checkpoint that training starts from; None = the mechanism untrained.
        """
        configs = ["-c", str(BASE), "-c", str(CONFIGS / "attention" / f"{mechanism}.yaml")]
        folder = f"{name or mechanism}-{seed}"
        regions, first = self.folder / "regions", start or self.folder / "starts" / f"{folder}.ckpt"
        if not (self.folder / folder / "done").exists():
            if start is None:
                _save_start(first, configs[1::2], seed, encoder)
            if encoder is None:
                run("features", *configs[:2], "--model", str(first), "--out", str(regions), *self.more[:2])
        started = ["--model.warm_start", str(first), *FROZEN]
        if encoder is None:
            started += ["--data.features", str(regions)]
        else:
            started += [f"--model.encoder={json.dumps(encoder.spec)}"]
        return self.fitted(folder, [*configs, *started, *arguments], seed)

    def fitted(self, folder: str, arguments: Sequence[str], seed: int) -> Captioner:
        """The best model of a `caption fit` of these arguments."""
        best = fit(self.folder / folder, [*arguments, *self.more, "--seed_everything", str(seed)])
        return checkpoint.load(best)

    def sentences(self, split: str = "test", limit: int | None = None) -> list[Sentence]:
        """The captions with a relation of each scene: from either side, where they differ."""
        images = self.reader.read()[split]
        boxes = self.reader.boxes(split)
        return [
            sentence
            for number, image in enumerate(images[:limit])
            for text in sorted(image.captions)
            if text.startswith(("a ", "look "))
            for sentence in [_sentence(str(image.path), number, text, boxes[image.id])]
        ]


def _save_start(path: Path, configs: Sequence[str], seed: int, encoder: Encoder | None) -> None:
    """Write an untrained model of a mechanism with an encoder; None = the shared one."""
    shared = load(ENCODER)
    specs = read_parts(configs, names=["model.decoder", "model.refiner"])
    decoder = make(specs["model.decoder"].as_dict(), Decoder)
    refiner = specs["model.refiner"] and make(specs["model.refiner"].as_dict(), Refiner)
    torch.manual_seed(seed)
    make_parents(path)
    parts = (encoder or shared.encoder, decoder, shared.vocabulary, shared.transform, shared.search, refiner)
    checkpoint.save(Captioner(*parts), path)


def _sentence(photo: str, image: int, text: str, boxes: Boxes) -> Sentence:
    words = text.split()
    subject, other = (mention.word for mention in find_mentions(words, boxes))
    return Sentence(photo, image, words, subject, other, boxes)


def replayed(captioner: Captioner, given: Sequence[Sentence]) -> Iterator[tuple[Replay, Sentences]]:
    """A model that is fed the sentences, in batches."""
    replay = Replay(captioner.decoder)
    captions = [_caption(each.words) for each in given]
    for batch in sentences(captioner, [each.photo for each in given], captions, batch_size=100):
        yield replay, batch


def _caption(words: list[str]) -> Caption:
    """Words as a caption; its map is not used."""
    return Caption(
        " ".join(words), words, np.ones((len(words), 1, 1)), 0.0, np.zeros(len(words)), (0, 0, 1, 1)
    )


def covered(captioner: Captioner, grid: Grid, boxes: Sequence[BoxLike]) -> np.ndarray:
    """(L,) the part of each cell that the boxes cover, of a scene."""
    seen = captioner.transform.box(SIDE, SIDE)
    return coverage(*grid, captioner.boxes(seen)[0], list(boxes), seen).reshape(-1)


def interval(of: Estimate, digits: int = 2, times: float = 1.0) -> str:
    """A mean with its interval in brackets, each multiplied by a number."""
    mean, low, high = (f"{times * value:.{digits}f}".replace("-", "−") for value in of)
    return f"{mean} [{low}, {high}]"


def bars(ax: Axes, rows: Mapping[str, Sequence[float] | np.ndarray], groups: Sequence[str]) -> None:
    """Groups of bars, one bar in each for every row."""
    width = 0.8 / len(rows)
    for number, (name, values) in enumerate(rows.items()):
        places = np.arange(len(groups)) + (number - (len(rows) - 1) / 2) * width
        ax.bar(places, values, width, label=name, color=f"C{number}")
    ax.set_xticks(
        range(len(groups)), labels=groups, rotation=35, ha="right", rotation_mode="anchor", fontsize=8
    )
    ax.spines[["top", "right"]].set_visible(False)
