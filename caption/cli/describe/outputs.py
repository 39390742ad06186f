"""The files that `caption describe` writes: a figure for each photo or word, animations, arrays, a contact sheet, a
page."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.configuration.arguments import count, whole_number
from caption.core.errors import UserError, first_few, printable
from caption.core.runtime.atomic_files import is_device, replacing_own, short_name
from caption.core.runtime.outputs import (
    ANIMATIONS,
    FIGURES,
    check_encoder,
    check_outputs,
    identities,
    output_file,
    output_paths,
)

if TYPE_CHECKING:  # torch and Matplotlib take seconds to import, and --help must not wait for them
    from matplotlib.figure import Figure

    from caption.results.caption import Caption

STYLES = ("heat", "paper", "glow", "cells")
STYLE = ("style", "smooth", "cmap", "opacity")
"""Options of all pictures."""
SHAPE = ("words", "rows", "title", "legend", "own_scale", "per_word", "width")
"""Options of --heatmap; the contact sheet takes some of them."""
OF_SHEETS = ("words", "legend", "width")
MOST_ON_A_SHEET = 100
SHEET_DPI = 100
"""Resolution of contact sheets: 48 photos are 5 MB as PNG."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that name files, and those for the look of pictures."""
    add = parser.add_argument
    help_ = "a figure with a panel for each word, as .png, .pdf, .svg ...; an animation, as .gif, .webp, .mp4"
    add("--heatmap", metavar="FILE|DIR", help=help_)
    help_ = "only these words of the caption, such as man,camera; or a number of words that name things"
    add("--words", type=_words, metavar="WORDS|N", help=help_)
    help_ = "a file for each word: only its map over the photo"
    add("--per-word", action="store_true", help=help_)
    add("--rows", type=count, metavar="N", help="rows of panels; default: as suits the photo")
    add("--no-title", dest="title", action="store_false", help="leave out the sentence")
    add("--no-legend", dest="legend", action="store_false", help="leave out the scale and the words' numbers")
    add("--own-scale", action="store_true", help="a scale for each word, as in the authors' notebook")
    help_ = "of a picture; default: 150 per inch, 100 per inch for contact sheets, 640 for animations"
    add("--width", type=whole_number(1, 20_000), metavar="PIXELS", help=help_)
    help_ = "the alignment matrix: words by regions; of a Transformer decoder, also words by the words before"
    add("--matrix", metavar="FILE|DIR", help=help_)
    add(
        "--contact-sheet", metavar="FILE", help="one figure with every photo; with --words, beside their maps"
    )
    add("--html", metavar="FILE", help="one interactive page with all photos, and the maps of a --question")
    help_ = (
        "draw another map than the attention: a method, such as gradcam, occlusion or shapley, or one of the model's "
        "maps, such as 'heads[2]'"
    )
    add("--map", metavar="NAME", help=help_)
    help_ = "another model beside the first, on the page and in the figures; may be repeated"
    add("--compare", action="append", default=[], metavar="CKPT|NAME", help=help_)
    help_ = "colours above even attention on the paler photo; the paper's white glow; the lit photo; every cell of the "
    add("--style", choices=STYLES, help=f"of the pictures: {help_}grid; default heat")
    add("--smooth", action=argparse.BooleanOptionalAction, help="between cells; default: the style's")
    add("--cmap", metavar="NAME", help="Matplotlib's colours, such as viridis, in place of the style's")
    add("--opacity", type=float, metavar="O", help="of the colours, 0 to 1; default: the style's")
    add("--attention", metavar="FILE.npz|DIR", help="arrays: words, weights (T, rows, cols), gates, box")


class Outputs:
    """Checks the files that the options name, and writes them photo by photo, the sheet and the page at the end.

    Args:
        options: of `add_options`, parsed.
        photos: the names of all photos; the files of each are named after it.
        read: all files that are read; models may be names.

    Raises:
        UserError: a path, a colour map or the opacity cannot be used; a file cannot be written, or would replace an
            input or a file of the user; a sheet would hold too many photos; an option is for pictures that are not
            asked for, or for pictures of one model while several are compared.
    """

    def __init__(self, options: argparse.Namespace, photos: Sequence[str], read: Sequence[str]) -> None:
        self.photos = photos
        self.per_word, self.width = options.per_word, options.width
        kinds = FIGURES if options.per_word else (*FIGURES, ".mp4")
        self.heatmaps = output_paths(options.heatmap, photos, kinds, "--heatmap") if options.heatmap else []
        self.matrices = output_paths(options.matrix, photos, FIGURES, "--matrix") if options.matrix else []
        self.sheet = options.contact_sheet and output_file(options.contact_sheet, FIGURES, "--contact-sheet")
        self.page = options.html and output_file(options.html, (".html", ".htm"), "--html")
        self._check(options)
        self.style = _chosen(options, STYLE)
        """Arguments of `caption.visualize.styles.OverlayStyle`."""
        self.panels = _chosen(options, ("words", "rows", "title", "legend", "own_scale"))
        """Arguments of `caption.visualize.plot_caption`, and some of them of `contact_sheet`."""
        _check_style(self.style)
        self.arrays = (
            output_paths(options.attention, photos, (".npz",), "--attention") if options.attention else []
        )
        self.read = identities(read)
        check_outputs(self._paths(), self.read)
        self.captions: dict[str, list[Caption]] = {}
        """Captions of the photos so far, by the name of their model, for the sheet and the page."""
        self.names: list[str] = []
        """Names of these photos."""
        self.written: list[Path] = []

    def _check(self, options: argparse.Namespace) -> None:
        """Check that options fit together."""
        figures = not self.per_word and any(path.suffix.lower() not in ANIMATIONS for path in self.heatmaps)
        if options.compare and not (self.page or figures):
            raise UserError("--compare needs a page or a figure: name --html FILE or --heatmap FILE.png")
        for name in ("rows", "title", "legend") if options.compare else ():
            if name in options.given:
                raise UserError(f"{options.given[name]} is for figures of one model: leave out --compare")
        if self.sheet and len(self.photos) > MOST_ON_A_SHEET:
            raise UserError(
                f"--contact-sheet holds {MOST_ON_A_SHEET} photos, but there are {len(self.photos)}"
            )
        shaped = dict.fromkeys(SHAPE, self.heatmaps) | dict.fromkeys(OF_SHEETS, self.heatmaps or self.sheet)
        shaped["width"] = self.heatmaps or self.sheet or self.matrices
        styled = dict.fromkeys(STYLE, self.heatmaps or self.sheet or self.page)
        if options.map and not (
            self.heatmaps or self.matrices or self.sheet or self.page or options.attention
        ):
            raise UserError("--map is for pictures and arrays: name one, such as --heatmap FILE")
        for name, pictures in (shaped | styled).items():
            if name in options.given and not pictures:
                which = "pictures" if name in STYLE else "the pictures of --heatmap"
                raise UserError(f"{options.given[name]} is for {which}: name one with --heatmap FILE")
        for path in self.heatmaps:
            check_encoder(path)
            if self.per_word and is_device(path):
                raise UserError(
                    f"--per-word writes several files: name a folder with --heatmap, not {printable(path)}"
                )

    def _paths(self) -> dict[str, list[Path]]:
        """The paths by their option; for the pictures of a photo's words, one path."""
        heatmaps = [path_of_word(path, 0, "") for path in self.heatmaps] if self.per_word else self.heatmaps
        by_option: dict[str, Sequence[Path | None]] = {
            "--heatmap": heatmaps,
            "--matrix": self.matrices,
            "--contact-sheet": [self.sheet],
            "--html": [self.page],
            "--attention": self.arrays,
        }
        return {option: [path for path in paths if path] for option, paths in by_option.items() if any(paths)}

    def add(
        self, index: int, captions: Mapping[str, Caption], questions: Mapping[str, Caption]
    ) -> str | None:
        """Write the files of a photo, and keep its captions for the sheet and the page.

        Args:
            index: of the photo.
            captions: of the photo by the names of the models; files for a single model are of the first.
            questions: to the models, for the page alone.

        Returns:
            the reason why no picture of it was written, in a sentence; None if one was.
        """
        caption = next(iter(captions.values()))
        if self.arrays:
            caption.save_attention(self.arrays[index], replacing_own)
            self.written.append(self.arrays[index])
        if self.sheet or self.page:
            self.names.append(Path(self.photos[index]).name)
            for model, of_model in (*captions.items(), *questions.items()):
                self.captions.setdefault(model, []).append(of_model)
        if self.matrices and caption.words:
            from caption.visualize import plot_matrix

            self._save(plot_matrix(caption), self.matrices[index])
        if not self.heatmaps:
            return None
        panels = dict(self.panels)
        if isinstance(words := panels.get("words"), list):
            spoken = {word.casefold() for word in caption.words}
            panels["words"] = [word for word in words if word.casefold() in spoken]
            if not panels["words"]:
                name = printable(self.photos[index])
                return f"the caption of {name} has no word {first_few(map(repr, words))}: there is no picture of it"
        self._draw(captions, self.heatmaps[index], panels)
        return None

    def _draw(self, captions: Mapping[str, Caption], path: Path, panels: dict[str, Any]) -> None:
        """Draw the heatmap of a photo, or the pictures of its words."""
        from caption.visualize import compare_captions, plot_caption, plot_word, save_animation

        caption = next(iter(captions.values()))
        assert caption.image is not None
        style = {**self.style, "own_scale": panels.get("own_scale", False)}
        if self.per_word:
            from caption.visualize.words import steps_of

            steps = steps_of(caption, panels.get("words"))
            paths = {step: path_of_word(path, step, caption.words[step]) for step in steps}
            # The words were unknown when the outputs were checked.
            check_outputs({"--heatmap": list(paths.values())}, self.read)
            for step, of_word in paths.items():
                self._save(plot_word(caption, caption.image, step, **style), of_word)
        elif path.suffix.lower() in ANIMATIONS:
            from caption.visualize.animation import WIDTH

            save_animation(
                caption, caption.image, path, width=self.width or WIDTH, words=panels.get("words"),
                opener=replacing_own, **style,
            )  # fmt: skip
            self.written.append(path)
        elif len(captions) > 1:
            self._save(compare_captions(captions, caption.image, **panels, **self.style), path)
        else:
            self._save(plot_caption(caption, caption.image, **panels, **self.style), path)

    def _save(self, figure: Figure, path: Path, width: int | None = None) -> None:
        from caption.visualize import save_figure

        save_figure(figure, path, opener=replacing_own, width=width or self.width)
        self.written.append(path)

    def finish(self) -> None:
        """Write the sheet and the page of the captions so far."""
        if not self.names:
            return
        from caption.visualize import contact_sheet, save_html, to_html

        captions = next(iter(self.captions.values()))
        if self.sheet:
            panels = {name: value for name, value in self.panels.items() if name in OF_SHEETS}
            sheet = contact_sheet(captions, names=self.names, **panels, **self.style)
            self._save(sheet, self.sheet, self.width or int(SHEET_DPI * sheet.get_size_inches()[0]))
        if self.page:
            page = to_html(self.captions if len(self.captions) > 1 else captions, **self.style)
            save_html(page, self.page, opener=replacing_own)
            self.written.append(self.page)


def _chosen(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """The options among `names` that are given."""
    return {name: getattr(options, name) for name in names if name in options.given}


def _check_style(style: dict[str, Any]) -> None:
    """Raise a UserError if a colour map or the opacity cannot be used."""
    if not style:
        return
    from caption.visualize.scale import Scale
    from caption.visualize.styles import OverlayStyle

    try:
        OverlayStyle(**style).colours(Scale(0, 1))
    except ValueError as error:
        raise UserError(str(error)) from error


def path_of_word(path: Path, step: int, word: str) -> Path:
    """The path of a word's picture: beach.png becomes beach-02-man.png.

    A word comes from the model's file, which may be a stranger's: only its letters and digits are in the name.
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
