"""Fonts for scripts that Matplotlib's default font lacks, such as Chinese, Japanese and Thai."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from unicodedata import bidirectional

from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

MEASURED_DPI = 150
"""That of files: letters are hinted, and a line of them has other widths at other resolutions."""


@contextmanager
def fonts_of_all_scripts(fig: Figure) -> Iterator[None]:
    """Draw a figure with installed fonts for the characters that its own font lacks.

    Characters that no font has are drawn as boxes; a warning names them, once in a process.
    """
    choose_fonts(fig)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def choose_fonts(fig: Figure) -> None:
    """Give the texts of a figure fonts for the characters that their own lack."""
    for text in fig.findobj(Text):
        _choose_fonts(text)


@lru_cache(4096)
def text_width(text: str, points: float) -> float:
    """The width of a line of text of this size, in inches; spaces at its end do not count."""
    fig = Figure(dpi=MEASURED_DPI)
    line = fig.text(0, 0, text, fontsize=points, parse_math=False)
    with fonts_of_all_scripts(fig):
        return float(line.get_window_extent(FigureCanvasAgg(fig).get_renderer()).width) / MEASURED_DPI


def is_right_to_left(text: str) -> bool:
    """Whether a text is of a script that is written from right to left, such as Arabic, as told by its first letter."""
    directions = map(bidirectional, text)
    return next((way for way in directions if way in ("L", "R", "AL")), "L") != "L"


def _choose_fonts(text: Text) -> None:
    lacking = {*filter(str.isprintable, text.get_text())}
    lacking -= _characters(font_manager.findfont(text.get_fontproperties()))
    families = list(text.get_fontfamily())
    for family, path in _installed() if lacking else ():
        if lacking & _characters(path):
            families.append(family)
            lacking -= _characters(path)
    text.set_fontfamily(families)
    if lacking and not _reported:
        _reported.append("".join(sorted(lacking))[:20])
        warnings.warn(
            f"no installed font can draw {_reported[0]}: install one that can, such as Noto Sans (Debian: apt install "
            "fonts-noto-cjk fonts-noto-core), and remove Matplotlib's cache of fonts if it does not find it",
            stacklevel=3,
        )


_reported: list[str] = []
"""The characters that the warning has named."""


@cache
def _characters(path: str) -> frozenset[str]:
    """The characters that a font can draw."""
    return frozenset(map(chr, FT2Font(path).get_charmap()))


def _installed() -> list[tuple[str, str]]:
    """Upright fonts of ordinary weight, by family and path; Noto's first, which draw all languages alike."""
    fonts = {
        font.name: font.fname
        for font in font_manager.fontManager.ttflist
        if font.style == "normal"
        and font.weight in (400, "normal", "regular")
        and not font.name.startswith("Last Resort")
    }
    return sorted(fonts.items(), key=lambda font: (not font[0].startswith("Noto"), font[0]))
