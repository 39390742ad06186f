"""Writes the pictures of `caption describe`, photo by photo, and in the end those of all photos."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.cli.describe.pictures import OF_SHEETS, path_of_word
from caption.cli.describe.plan import Plan
from caption.errors import first_few, printable
from caption.runtime.files import replacing_own
from caption.runtime.outputs import ANIMATIONS, Identity, check_outputs, identities

if TYPE_CHECKING:  # torch and Matplotlib take seconds to import, and --help must not wait for them
    from caption.captioner import Captioner
    from caption.data.decoding import Photo
    from caption.result import Caption

SHEET_DPI = 100
"""Of contact sheets: 48 photos are 5 MB as PNG."""


class Pictures:
    """Writes the pictures of a plan.

    Args:
        whole: what is to be done.
        captioner: the model.
        others: those beside it, by name.
    """

    def __init__(self, whole: Plan, captioner: Captioner, others: Mapping[str, Captioner]) -> None:
        self.whole, self.plan, self.captioner, self.others = whole, whole.pictures, captioner, others
        self.photos = whole.inputs.photos
        self.read: dict[Identity, str] = {}
        self.captions: list[Caption] = []
        self.names: list[str] = []
        self.compared: dict[str, list[Caption]] = {name: [] for name in others}
        self.written: list[Path] = []

    def add(self, index: int, caption: Caption) -> str | None:
        """Write the pictures of a photo, and keep its caption for the sheet and the page.

        Returns:
            a sentence that says why no picture of it was written; None if one was.
        """
        photo = caption.image
        assert photo is not None
        if self.plan.matrices or self.plan.page:
            caption = _with_word_maps(caption, self.captioner)
        if self.plan.sheet or self.plan.page:
            self.captions.append(caption)
            self.names.append(Path(self.photos[index]).name)
        for name, other in self.others.items():
            self.compared[name].append(_with_word_maps(other.describe(photo, beam_tree=True), other))
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
        from caption.visualize import compare_captions, plot_caption, plot_word, save_animation, save_figure

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
            of_models = {self.whole.model: caption} | {name: own[-1] for name, own in self.compared.items()}
            several = len(of_models) > 1
            draw: Any = partial(compare_captions, of_models) if several else partial(plot_caption, caption)
            fig = draw(photo, **panels, **self.plan.style)
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
            # Ctrl-C may come between two models.
            complete = min(map(len, self.compared.values()), default=0)
            of_models = {self.whole.model: self.captions, **self.compared}
            captions = {name: own[:complete] for name, own in of_models.items()}
            page = to_html(captions if complete else self.captions, **self.plan.style)
            save_html(page, self.plan.page, opener=replacing_own)
            self.written.append(self.plan.page)


def _with_word_maps(caption: Caption, captioner: Captioner) -> Caption:
    """The caption, with the self-attention of its words if the model has it."""
    from caption.analysis.self_attention import has_word_maps, word_maps

    assert caption.image is not None
    return word_maps(captioner, caption.image, [caption])[0] if has_word_maps(captioner) else caption
