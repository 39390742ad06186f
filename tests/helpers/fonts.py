"""Fonts for characters that no font of Matplotlib's own has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager


@contextmanager
def installed_font(path: Path, characters: str) -> Iterator[None]:
    """Install a font that draws each of these characters as a filled square."""
    pen = TTGlyphPen(None)
    for draw, point in zip(
        (pen.moveTo, *[pen.lineTo] * 3), ((0, 0), (0, 900), (900, 900), (900, 0)), strict=True
    ):
        draw(point)
    pen.closePath()
    square = pen.glyph()
    names = [".notdef", *(f"uni{ord(character):04X}" for character in characters)]
    builder = FontBuilder(1000)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap(dict(zip(map(ord, characters), names[1:], strict=True)))
    builder.setupGlyf(dict.fromkeys(names, square))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "Squares", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    font_manager.fontManager.addfont(path)
    try:
        yield
    finally:
        font_manager.fontManager.ttflist = [
            f for f in font_manager.fontManager.ttflist if f.name != "Squares"
        ]
