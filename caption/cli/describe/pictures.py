"""The pictures that `caption describe` writes: a figure for each photo, a contact sheet, a page."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.errors import UserError
from caption.runtime.figure_formats import FIGURES
from caption.runtime.files import replacing_own
from caption.runtime.outputs import output_file, output_paths

if TYPE_CHECKING:  # torch and Matplotlib take seconds to import, and --help must not wait for them
    from caption.captioner import Captioner
    from caption.result import Caption

STYLES = ("heat", "paper", "glow", "cells")
LOOK = ("style", "smooth", "cmap", "opacity")
MOST_ON_A_SHEET = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that name pictures, and those that say how they look."""
    add = parser.add_argument
    add("--heatmap", metavar="FILE|DIR", help="a figure with a panel for each word, as .png, .pdf, .svg ...")
    add("--contact-sheet", metavar="FILE", help="one figure with every photo beside its attention")
    add("--html", metavar="FILE", help="one interactive page with all photos")
    add("--compare", metavar="CKPT|NAME", help="a second model, beside the first on the page")
    help_ = "colours above even attention on the grey photo; the paper's white glow; the lit photo; every cell of the "
    add("--style", choices=STYLES, help=f"of the pictures: {help_}grid; default heat")
    add("--smooth", action=argparse.BooleanOptionalAction, help="between cells; default: the style's")
    add("--cmap", metavar="NAME", help="Matplotlib's colours, such as viridis, in place of the style's")
    add("--opacity", type=float, metavar="O", help="of the colours, 0 to 1; default: the style's")


class Pictures:
    """The pictures that the options ask for.

    Args:
        options: parsed, with those of `add_options`.
        photos: all photos; each figure is named after its photo.

    Raises:
        UserError: a path, a colour map or the opacity cannot be used, a sheet would hold too many photos, or two models
            are to be compared without a page or have one name.
    """

    def __init__(self, options: argparse.Namespace, photos: list[str]) -> None:
        self.photos = photos
        self.heatmaps = options.heatmap and output_paths(options.heatmap, photos, FIGURES, "--heatmap")
        self.sheet = options.contact_sheet and output_file(options.contact_sheet, FIGURES, "--contact-sheet")
        self.page = options.html and output_file(options.html, (".html", ".htm"), "--html")
        self.look: dict[str, Any] = {name: getattr(options, name) for name in LOOK}
        self.look = {name: value for name, value in self.look.items() if value is not None}
        self.captions: list[Caption] = []
        self.models = options.model, options.compare
        self.second: Captioner | None = None
        """The model of --compare; set it before the first photo."""
        self.compared: list[Caption] = []
        if options.compare and not self.page:
            raise UserError("--compare shows a second model on the page: name one with --html FILE")
        if options.compare == options.model:
            raise UserError(f"--compare names the model itself, {options.model}: name another one")
        if self.sheet and len(photos) > MOST_ON_A_SHEET:
            raise UserError(f"--contact-sheet holds {MOST_ON_A_SHEET} photos, and there are {len(photos)}")
        if self.look:
            from caption.visualize.scale import Scale
            from caption.visualize.styles import Look

            try:
                Look(**self.look).colours(Scale(0, 1))
            except ValueError as error:
                raise UserError(str(error)) from error

    @property
    def outputs(self) -> dict[str, list[Path]]:
        """The paths by the option that named them."""
        named = {"--heatmap": self.heatmaps, "--contact-sheet": self.sheet, "--html": self.page}
        return {
            option: paths if isinstance(paths, list) else [paths] for option, paths in named.items() if paths
        }

    def add(self, index: int, caption: Caption) -> None:
        """Write the figure of a photo, and keep its caption for the sheet and the page."""
        if self.heatmaps:
            from caption.visualize import plot_caption, save_figure

            fig = plot_caption(caption, self.photos[index], **self.look)
            save_figure(fig, self.heatmaps[index], opener=replacing_own)
        if self.sheet or self.page:
            self.captions.append(caption)
        if self.second is not None:
            self.compared.append(self.second.describe(self.photos[index]))

    def finish(self) -> None:
        """Write the sheet and the page of the captions so far."""
        if not self.captions:
            return
        from caption.visualize import contact_sheet, save_figure, save_html, to_html

        if self.sheet:
            save_figure(contact_sheet(self.captions, **self.look), self.sheet, opener=replacing_own)
        if self.page:
            # Ctrl-C may come between the two models.
            both = dict(zip(self.models, (self.captions[: len(self.compared)], self.compared), strict=True))
            page = to_html(both if self.compared else self.captions, **self.look)
            save_html(page, self.page, opener=replacing_own)
