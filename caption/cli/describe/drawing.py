"""Writes the pictures of `caption describe`, photo by photo, and in the end those of all photos."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.describe.pictures import OF_SHEETS, path_of_word
from caption.cli.describe.plan import Plan
from caption.core.errors import first_few, printable
from caption.core.runtime.files import replacing_own
from caption.core.runtime.outputs import ANIMATIONS, Identity, check_outputs, identities

if TYPE_CHECKING:  # torch and Matplotlib take seconds to import, and --help must not wait for them
    from caption.captioner import Captioner
    from caption.data.decoding import Photo
    from caption.results.caption import Caption

SHEET_DPI = 100
"""Of contact sheets: 48 photos are 5 MB as PNG."""


class Pictures:
    """Writes the pictures of a plan.

    Args:
        whole: what is to be done.
        captioners: the model, then those beside it, by name.
    """

    def __init__(self, whole: Plan, captioners: Mapping[str, Captioner]) -> None:
        self.whole, self.plan, self.captioners = whole, whole.pictures, captioners
        self.read: dict[Identity, str] = {}
        self.captions: dict[str, list[Caption]] = {name: [] for name in captioners}
        self.names: list[str] = []
        self.written: list[Path] = []

    def add(self, index: int, caption: Caption) -> str | None:
        """Write the pictures of a photo, and keep its caption for the sheet and the page.

        Returns:
            a sentence that says why no picture of it was written; None if one was.
        """
        photo = caption.image
        assert photo is not None
        of_models = {self.whole.model: caption}
        for name, other in list(self.captioners.items())[1:]:
            of_models[name] = other.describe(photo, beam_tree=self.plan.page is not None)
        if self.plan.matrices or self.plan.page:
            of_models = {name: _with_word_maps(own, self.captioners[name]) for name, own in of_models.items()}
            caption = of_models[self.whole.model]
        if self.plan.sheet or self.plan.page:
            self.names.append(Path(self.whole.inputs.photos[index]).name)
            for name, own in of_models.items():
                self.captions[name].append(own)
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
                name = printable(self.whole.inputs.photos[index])
                return f"the caption of {name} has no word {first_few(map(repr, words))}: there is no picture of it"
        self._draw(of_models, photo, self.plan.heatmaps[index], panels)
        return None

    def _draw(self, of_models: dict[str, Caption], photo: Photo, path: Path, panels: dict[str, Any]) -> None:
        from caption.visualize import compare_captions, plot_caption, plot_word, save_animation, save_figure

        caption = of_models[self.whole.model]
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
            if len(of_models) > 1:
                fig = compare_captions(of_models, photo, **panels, **self.plan.style)
            else:
                fig = plot_caption(caption, photo, **panels, **self.plan.style)
            save_figure(fig, path, opener=replacing_own, width=self.plan.width)
        self.written.append(path)

    def finish(self) -> None:
        """Write the sheet and the page of the captions so far."""
        if not self.names:
            return
        from caption.visualize import contact_sheet, save_figure, save_html, to_html

        captions = self.captions[self.whole.model]
        if self.plan.sheet:
            panels = {name: value for name, value in self.plan.panels.items() if name in OF_SHEETS}
            sheet = contact_sheet(captions, names=self.names, **panels, **self.plan.style)
            width = self.plan.width or int(SHEET_DPI * sheet.get_size_inches()[0])
            save_figure(sheet, self.plan.sheet, opener=replacing_own, width=width)
            self.written.append(self.plan.sheet)
        if self.plan.page:
            page = to_html(self.captions if len(self.captions) > 1 else captions, **self.plan.style)
            save_html(page, self.plan.page, opener=replacing_own)
            self.written.append(self.plan.page)


def _with_word_maps(caption: Caption, captioner: Captioner) -> Caption:
    """The caption, with the self-attention of its words if the model has it."""
    from caption.analysis.self_attention import has_word_maps, word_maps

    assert caption.image is not None
    return word_maps(captioner, caption.image, [caption])[0] if has_word_maps(captioner) else caption
