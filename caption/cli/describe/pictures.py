"""The pictures that `caption describe` writes: a figure for each photo or word, animations, a contact sheet, a page."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.configuration.arguments import count, whole_number
from caption.errors import UserError, first_few, printable
from caption.runtime.files import is_device, replacing_own, short_name
from caption.runtime.outputs import (
    ANIMATIONS,
    FIGURES,
    Identity,
    check_encoder,
    check_outputs,
    identities,
    output_file,
    output_paths,
)

if TYPE_CHECKING:  # torch and Matplotlib take seconds to import, and --help must not wait for them
    from caption.captioner import Captioner
    from caption.cli.describe.plan import Plan
    from caption.data.decoding import Photo
    from caption.result import Caption

STYLES = ("heat", "paper", "glow", "cells")
STYLE = ("style", "smooth", "cmap", "opacity")
"""Options of all pictures."""
SHAPE = ("words", "rows", "title", "legend", "own_scale", "per_word", "width")
"""Options of --heatmap; the contact sheet takes some of them."""
OF_SHEETS = ("words", "legend", "width")
SHEET_DPI = 100
"""Of contact sheets: 48 photos are 5 MB as PNG."""
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
    add("--compare", metavar="CKPT|NAME", help="a second model, beside the first on the page")
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
            picture is described that is not asked for, or two models are to be compared without a page.
    """
    kinds = FIGURES if options.per_word else (*FIGURES, ".mp4")
    heatmaps = output_paths(options.heatmap, photos, kinds, "--heatmap") if options.heatmap else []
    matrices = output_paths(options.matrix, photos, FIGURES, "--matrix") if options.matrix else []
    sheet = options.contact_sheet and output_file(options.contact_sheet, FIGURES, "--contact-sheet")
    page = options.html and output_file(options.html, (".html", ".htm"), "--html")
    if options.compare and not page:
        raise UserError("--compare shows a second model on the page: name one with --html FILE")
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


class Pictures:
    """Writes the pictures of a plan.

    Args:
        whole: what is to be done.
        captioners: the first model, and the second if there is one.
    """

    def __init__(self, whole: Plan, captioners: Sequence[Captioner]) -> None:
        self.whole, self.plan, self.captioners = whole, whole.pictures, captioners
        self.photos = whole.inputs.photos
        self.read: dict[Identity, str] = {}
        self.captions: list[Caption] = []
        self.names: list[str] = []
        self.compared: list[Caption] = []
        self.written: list[Path] = []

    def add(self, index: int, caption: Caption) -> str | None:
        """Write the pictures of a photo, and keep its caption for the sheet and the page.

        Returns:
            why there is no picture of it, in a sentence; None if there is.
        """
        photo = caption.image
        assert photo is not None
        if self.plan.matrices or self.plan.page:
            caption = _with_word_maps(caption, self.captioners[0])
        if self.plan.sheet or self.plan.page:
            self.captions.append(caption)
            self.names.append(Path(self.photos[index]).name)
        for other in self.captioners[1:]:
            self.compared.append(_with_word_maps(other.describe(photo, beam_tree=True), other))
        if self.plan.matrices and caption.words:
            from caption.visualize import plot_matrix, save_figure

            path = self.plan.matrices[index]
            save_figure(plot_matrix(caption), path, opener=replacing_own, width=self.plan.width)
            self.written.append(path)
        if not self.plan.heatmaps:
            return None
        panels = dict(self.plan.panels)
        if isinstance(words := panels.get("words"), list):
            spoken = {word.casefold() for word in caption.words}
            panels["words"] = [word for word in words if word.casefold() in spoken]
            if not panels["words"]:
                missing = first_few(map(repr, words))
                name = printable(self.photos[index])
                return f"the caption of {name} has no word {missing}: there is no picture of it"
        self._draw(caption, photo, self.plan.heatmaps[index], panels)
        return None

    def _draw(self, caption: Caption, photo: Photo, path: Path, panels: dict[str, Any]) -> None:
        from caption.visualize import plot_caption, plot_word, save_animation, save_figure

        style = {**self.plan.style, "own_scale": panels.get("own_scale", False)}
        if self.plan.per_word:
            from caption.visualize.words import steps_of

            steps = steps_of(caption, panels.get("words"))
            paths = {step: path_of_word(path, step, caption.words[step]) for step in steps}
            # What words there are was not known when the outputs were checked.
            self.read = self.read or identities(self.whole.read)
            check_outputs({"--heatmap": list(paths.values())}, self.read)
            for step, of_word in paths.items():
                fig = plot_word(caption, photo, step, **style)
                save_figure(fig, of_word, opener=replacing_own, width=self.plan.width)
            self.written += paths.values()
            return
        if path.suffix.lower() in ANIMATIONS:
            from caption.visualize.animation import WIDTH

            save_animation(
                caption, photo, path, width=self.plan.width or WIDTH, words=panels.get("words"),
                opener=replacing_own, **style,
            )  # fmt: skip
        else:
            fig = plot_caption(caption, photo, **panels, **self.plan.style)
            save_figure(fig, path, opener=replacing_own, width=self.plan.width)
        self.written.append(path)

    def finish(self) -> None:
        """Write the sheet and the page of the captions so far."""
        if not self.captions:
            return
        from caption.visualize import contact_sheet, save_figure, save_html, to_html

        if self.plan.sheet:
            panels = {name: value for name, value in self.plan.panels.items() if name in OF_SHEETS}
            sheet = contact_sheet(self.captions, names=self.names, **panels, **self.plan.style)
            width = self.plan.width or int(SHEET_DPI * sheet.get_size_inches()[0])
            save_figure(sheet, self.plan.sheet, opener=replacing_own, width=width)
            self.written.append(self.plan.sheet)
        if self.plan.page:
            # Ctrl-C may come between the two models.
            captions: Sequence[Caption] | dict[str, Sequence[Caption]] = self.captions
            if self.compared:
                captions = {
                    self.whole.model: self.captions[: len(self.compared)],
                    self.whole.options.compare: self.compared,
                }
            page = to_html(captions, **self.plan.style)
            save_html(page, self.plan.page, opener=replacing_own)
            self.written.append(self.plan.page)


def _with_word_maps(caption: Caption, captioner: Captioner) -> Caption:
    """The caption, with the self-attention of its words if the model has it."""
    from caption.analysis.self_attention import has_word_maps, word_maps

    assert caption.image is not None
    return word_maps(captioner, caption.image, [caption])[0] if has_word_maps(captioner) else caption


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
