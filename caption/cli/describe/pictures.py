"""The pictures that `caption describe` writes, as its options name them: a figure for each photo or word, animations, a
contact sheet, a page."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caption.cli.configuration.arguments import count, whole_number
from caption.core.errors import UserError, printable
from caption.core.runtime.files import is_device, short_name
from caption.core.runtime.outputs import ANIMATIONS, FIGURES, check_encoder, output_file, output_paths

STYLES = ("heat", "paper", "glow", "cells")
STYLE = ("style", "smooth", "cmap", "opacity")
"""Options of all pictures."""
SHAPE = ("words", "rows", "title", "legend", "own_scale", "per_word", "width")
"""Options of --heatmap; the contact sheet takes some of them."""
OF_SHEETS = ("words", "legend", "width")
MOST_ON_A_SHEET = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that name pictures, and those that say how they look."""
    add = parser.add_argument
    help_ = "a figure with a panel for each word, as .png, .pdf, .svg ...; an animation, as .gif, .webp, .mp4"
    add("--heatmap", metavar="FILE|DIR", help=help_)
    help_ = "these words of the caption alone, such as man,camera; a number: so many that name things"
    add("--words", type=_words, metavar="WORDS|N", help=help_)
    help_ = "a file for each word: its map over the photo, and nothing else"
    add("--per-word", action="store_true", help=help_)
    add("--rows", type=count, metavar="N", help="rows of panels; default: as suits the photo")
    add("--no-title", dest="title", action="store_false", help="leave out the sentence")
    add("--no-legend", dest="legend", action="store_false", help="leave out the scale and the words' numbers")
    add("--own-scale", action="store_true", help="a scale for each word, as in the authors' notebook")
    help_ = "of a picture; default: 150 on an inch, 100 for contact sheets, or 640 for animations"
    add("--width", type=whole_number(1, 20_000), metavar="PIXELS", help=help_)
    help_ = "the alignment matrix: words by regions; of a Transformer decoder, also words by the words before"
    add("--matrix", metavar="FILE|DIR", help=help_)
    add("--contact-sheet", metavar="FILE", help="one figure with every photo; with --words, a row for each")
    add("--html", metavar="FILE", help="one interactive page with all photos")
    help_ = "another model beside the first, on the page and in the figures; may be repeated"
    add("--compare", action="append", default=[], metavar="CKPT|NAME", help=help_)
    help_ = "colours above even attention on the paler photo; the paper's white glow; the lit photo; every cell of the "
    add("--style", choices=STYLES, help=f"of the pictures: {help_}grid; default heat")
    add("--smooth", action=argparse.BooleanOptionalAction, help="between cells; default: the style's")
    add("--cmap", metavar="NAME", help="Matplotlib's colours, such as viridis, in place of the style's")
    add("--opacity", type=float, metavar="O", help="of the colours, 0 to 1; default: the style's")


@dataclass(frozen=True)
class PicturePlan:
    """The pictures that the options ask for, and how they look."""

    heatmaps: list[Path]
    """A figure for each photo, or a name from which those of its words are made; or none."""
    matrices: list[Path]
    """A figure for each photo, or none."""
    sheet: Path | None
    page: Path | None
    per_word: bool
    width: int | None
    """Of figures and animations, in pixels; None = their own."""
    style: dict[str, Any]
    """Arguments of `caption.visualize.styles.OverlayStyle`."""
    panels: dict[str, Any]
    """Arguments of `caption.visualize.plot_caption`, and some of them of `contact_sheet`."""

    @property
    def outputs(self) -> dict[str, list[Path]]:
        """The paths by the option that named them; of pictures of words, one that stands for them."""
        heatmaps = [path_of_word(path, 0, "") for path in self.heatmaps] if self.per_word else self.heatmaps
        named: dict[str, Sequence[Path | None]] = {
            "--heatmap": heatmaps,
            "--matrix": self.matrices,
            "--contact-sheet": [self.sheet],
            "--html": [self.page],
        }
        return {option: [path for path in paths if path] for option, paths in named.items() if any(paths)}


def plan_pictures(options: argparse.Namespace, photos: Sequence[str]) -> PicturePlan:
    """Read and check the options of `add_options`.

    Args:
        options: parsed.
        photos: all photos; each figure is named after its photo.

    Raises:
        UserError: a path, a colour map, the opacity or a size cannot be used, a sheet would hold too many photos, a
            picture is described that is not asked for, or is of one model alone and several are to be compared.
    """
    kinds = FIGURES if options.per_word else (*FIGURES, ".mp4")
    heatmaps = output_paths(options.heatmap, photos, kinds, "--heatmap") if options.heatmap else []
    matrices = output_paths(options.matrix, photos, FIGURES, "--matrix") if options.matrix else []
    sheet = options.contact_sheet and output_file(options.contact_sheet, FIGURES, "--contact-sheet")
    page = options.html and output_file(options.html, (".html", ".htm"), "--html")
    figures = not options.per_word and any(path.suffix.lower() not in ANIMATIONS for path in heatmaps)
    if options.compare and not (page or figures):
        raise UserError("--compare needs a page or a figure: name --html FILE or --heatmap FILE.png")
    for name in ("rows", "title", "legend") if options.compare else ():
        if name in options.given:
            raise UserError(f"{options.given[name]} is for figures of one model: leave out --compare")
    if sheet and len(photos) > MOST_ON_A_SHEET:
        raise UserError(f"--contact-sheet holds {MOST_ON_A_SHEET} photos, and there are {len(photos)}")
    shaped = dict.fromkeys(SHAPE, heatmaps) | dict.fromkeys(OF_SHEETS, heatmaps or sheet)
    shaped["width"] = heatmaps or sheet or matrices
    for name, pictures in (shaped | dict.fromkeys(STYLE, heatmaps or sheet or page)).items():
        if name in options.given and not pictures:
            which = "pictures" if name in STYLE else "the pictures of --heatmap"
            raise UserError(f"{options.given[name]} is for {which}: name one with --heatmap FILE")
    for path in heatmaps:
        check_encoder(path)
        if options.per_word and is_device(path):
            raise UserError(
                f"--per-word writes several files: name a folder with --heatmap, not {printable(path)}"
            )

    def chosen(*names: str) -> dict[str, Any]:
        return {name: getattr(options, name) for name in names if name in options.given}

    style = chosen(*STYLE)
    if style:
        from caption.visualize.scale import Scale
        from caption.visualize.styles import OverlayStyle

        try:
            OverlayStyle(**style).colours(Scale(0, 1))
        except ValueError as error:
            raise UserError(str(error)) from error
    panels = chosen("words", "rows", "title", "legend", "own_scale")
    return PicturePlan(heatmaps, matrices, sheet, page, options.per_word, options.width, style, panels)


def path_of_word(path: Path, step: int, word: str) -> Path:
    """The path of a word's picture: beach.png becomes beach-02-man.png.

    A word comes from the model's file, which may be a stranger's: only letters and digits of it are in the name.
    """
    plain = re.sub(r"[\W_]+", "-", word).strip("-")[:40]
    return path.with_name(f"{short_name(path.stem)}-{step + 1:02d}{'-' * bool(plain)}{plain}{path.suffix}")


def _words(text: str) -> int | list[str]:
    """The value of --words: a number, or words between commas."""
    if text.strip().isdecimal() and int(text):
        return int(text)
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words or words == ["0"]:
        raise argparse.ArgumentTypeError(
            f"{text!r}: give words between commas, such as man,camera, or a number"
        )
    return words
