"""Figures draw the characters of every script for which a font is installed, and say where none is."""

from __future__ import annotations

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
from helpers.fonts import installed_font
from matplotlib.figure import Figure
from PIL import Image

from caption.visualize.figure_file import render

RARE = "\U00030000\U00030001\U00030002\U00030003"  # Chinese characters that few fonts have


def ink(text: str) -> int:
    """Dark pixels of a figure with this text."""
    fig = Figure((2, 1))
    fig.text(0.2, 0.4, text, fontsize=20)
    return int((np.asarray(Image.open(io.BytesIO(render(fig, "png", 100))).convert("L")) < 128).sum())


def test_a_font_that_has_the_characters_is_found(tmp_path: Path):
    with installed_font(tmp_path / "squares.ttf", RARE[:2]), warnings.catch_warnings():
        warnings.simplefilter("error")
        of_letters, of_all = ink("a"), ink(f"a {RARE[:2]}")
    square = (20 / 72 * 100 * 0.9) ** 2
    assert of_all - of_letters == pytest.approx(2 * square, rel=0.1)


def test_characters_without_a_font_are_named_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("caption.visualize.fonts._said", [])
    with pytest.warns(UserWarning, match=rf"no installed font can draw {RARE[2]}: install"):
        ink(RARE[2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ink(RARE[3])
