"""The picture and the page in which all mechanisms look at the same scenes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from caption.analysis.pointing_game import Mention, find_mentions
from caption.box import BoxLike
from caption.captioner import Captioner
from caption.data.boxes import Boxes
from caption.data.decoding import open_image
from caption.data.readers.captions import CaptionedImage
from caption.text.vocabulary import START
from caption.visualize import overlay, save_figure, save_html, show_photo, to_html
from caption.visualize.figure_file import NotebookFigure
from caption.visualize.layout import add_axes
from caption.visualize.scale import scale_of

# Inches. A picture is as wide as the text of a page, and its names are read without enlarging it.
PANEL, TITLE, GAP, SPACE, LINE, MARGIN = 1.15, 0.22, 0.04, 0.22, 0.2, 0.1
COLUMNS = 3
DPI = 100
SCENES = 3
"""On the page; the first of the test split."""
DRAWN = 2
"""Of these, in each picture."""


class View(NamedTuple):
    """One word of a caption, as one mechanism looks at it."""

    weights: np.ndarray | None
    """(rows, cols); None if the model has no attention."""
    box: BoxLike
    signed: bool


class Word(NamedTuple):
    """A scene, and the word for which all mechanisms look at it."""

    scene: CaptionedImage
    words: list[str]
    """A caption that was given to all mechanisms."""
    mention: Mention
    """Of the object that the word names."""


def choose_words(scenes: Sequence[CaptionedImage], boxes: Mapping[int | str, Boxes]) -> list[Word]:
    """A word of each scene: of its first caption, the shape of the last object, of the first one, and so on in turn."""
    chosen = []
    for number, scene in enumerate(scenes):
        words = scene.captions[0].split()
        mentions = find_mentions(words, boxes[scene.id])
        chosen.append(Word(scene, words, mentions[-1 if number % 2 == 0 else 0]))
    return chosen


@torch.no_grad()
def look(captioner: Captioner, word: Word) -> View:
    """Where a model looks for a word of a caption that it is given."""
    photo = open_image(word.scene.path)
    seen = captioner.transform.box(*photo.size)
    box = captioner.boxes(seen)[0]
    decoder = captioner.decoder
    if not decoder.attentions:
        return View(None, box, False)
    views = captioner.encoder(captioner.transform(photo)[None])
    ids = [START, *(captioner.vocabulary[each] for each in word.words[:-1])]
    unrolled = captioner.unroll(views, torch.tensor([[ids]]), torch.tensor([[len(ids)]]))
    weights = unrolled.unpack(unrolled.trace.weights)[0, 0, word.mention.word]
    return View(weights.view(captioner.grids(views)[0]).numpy(), box, decoder.properties.signed)


def draw(models: Mapping[str, Captioner | None], words: Sequence[Word], file: Path) -> None:
    """Write the picture of a family: for each mechanism a panel per scene, each with a scale of its own.

    Args:
        models: by name; None = there is none yet.
        words: the scenes, which come first.
        file: the picture.
    """
    cells = len(models) + 1
    columns, rows = min(COLUMNS, cells), math.ceil(cells / COLUMNS)
    wide = len(words) * (PANEL + GAP) - GAP
    heading = LINE * len(words) + GAP
    height = 2 * MARGIN + heading + rows * (PANEL + TITLE + GAP)
    size = COLUMNS * (wide + SPACE) - SPACE + 2 * MARGIN, height
    figure = NotebookFigure(figsize=size, facecolor="white")
    for number, word in enumerate(words):
        text = f"{number + 1}. {_heading(word)}"
        top = 1 - (MARGIN + number * LINE) / size[1]
        figure.text(MARGIN / size[0], top, text, va="top", fontsize=9, parse_math=False)
    for index, name in enumerate(["the scenes", *models]):
        row, column = divmod(index, columns)
        left = MARGIN + column * (wide + SPACE)
        down = MARGIN + heading + row * (PANEL + TITLE + GAP) + TITLE
        where = left / size[0], 1 - (down - GAP) / size[1]
        figure.text(*where, name, va="bottom", fontsize=min(9.0, 290 / len(name)), parse_math=False)
        for number, word in enumerate(words):
            ax = add_axes(figure, size, (left + number * (PANEL + GAP), down, PANEL, PANEL))
            model = models[name] if index else None
            _panel(ax, word, look(model, word) if model else None, missing=index > 0 and model is None)
    save_figure(figure, file, dpi=DPI)


def _panel(ax: Axes, word: Word, view: View | None, missing: bool) -> None:
    if view is None or view.weights is None:
        show_photo(ax, word.scene.path)
        if view is not None or missing:
            ax.text(
                0.5, 0.5, "not trained" if missing else "no map", transform=ax.transAxes, ha="center", va="center",
                color="white", bbox={"facecolor": "black", "alpha": 0.6, "linewidth": 0}, fontsize=8,
            )  # fmt: skip
    else:
        overlay(ax, view.weights, view.box, word.scene.path, scale_of(view.weights, signed=view.signed))
    for left, top, right, bottom in word.mention.boxes:
        ax.add_patch(
            Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor="lime", linewidth=0.8)
        )


def _heading(word: Word) -> str:
    place = word.mention.word
    return " ".join(each.upper() if step == place else each for step, each in enumerate(word.words))


def page(models: Mapping[str, Captioner], scenes: Sequence[CaptionedImage], file: Path) -> None:
    """Write the page: for each scene, every mechanism's own caption with a heatmap per word."""
    # Single heads and channels would not fit; the summary is what the mechanisms have in common.
    captions = {
        name: [
            replace(caption, maps={}, alternatives=[])
            for caption in model.describe([scene.path for scene in scenes])
        ]
        for name, model in models.items()
    }
    title = "How mechanisms of attention look at the same scenes"
    save_html(to_html(captions, title, names=[scene.captions[0] for scene in scenes]), file)
