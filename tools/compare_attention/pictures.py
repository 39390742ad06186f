"""The pictures in which the mechanisms of a family look at the same scenes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from caption.captioner import Captioner
from caption.data.boxes import Boxes
from caption.data.readers.captions import CaptionedImage
from caption.text.mentions import Mention, find_mentions
from caption.visualize import overlay, save_figure, show_photo
from caption.visualize.figure_file import NotebookFigure
from caption.visualize.layout import add_axes
from caption.visualize.scale import scale_of
from tools.compare_attention.page import read_by

# Inches. A picture is as wide as the text of a page, and its names are read without enlarging it.
PANEL, TITLE, GAP, SPACE, LINE, MARGIN = 1.15, 0.22, 0.04, 0.22, 0.2, 0.1
COLUMNS = 3
DPI = 100
DRAWN = 2
"""Scenes in each picture."""


class Word(NamedTuple):
    """A scene, and the word for which all mechanisms look at it."""

    scene: CaptionedImage
    words: list[str]
    """The scene's first caption, which all mechanisms read."""
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
            _panel(ax, word, model, "not trained" if index and not model else "")
    save_figure(figure, file, dpi=DPI)


def _panel(ax: Axes, word: Word, model: Captioner | None, lacks: str) -> None:
    """The scene, and where the model looks; without one, what it lacks."""
    if model is None or not model.decoder.attentions:
        show_photo(ax, word.scene.path)
        if model or lacks:
            ax.text(
                0.5, 0.5, lacks or "no map", transform=ax.transAxes, ha="center", va="center",
                color="white", bbox={"facecolor": "black", "alpha": 0.6, "linewidth": 0}, fontsize=8,
            )  # fmt: skip
    else:
        caption = read_by(model, word.scene)
        weights = caption.weights[word.mention.word]
        scale = scale_of(weights, signed=caption.properties.signed)
        overlay(ax, weights, caption.box, word.scene.path, scale)
    for left, top, right, bottom in word.mention.boxes:
        ax.add_patch(
            Rectangle((left, top), right - left, bottom - top, fill=False, edgecolor="lime", linewidth=0.8)
        )


def _heading(word: Word) -> str:
    place = word.mention.word
    return " ".join(each.upper() if step == place else each for step, each in enumerate(word.words))
