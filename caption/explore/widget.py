"""The explorer in a notebook, an anywidget over the same page code.

explorer = captioner.explore("photo.jpg")
explorer                       # click or paint in the notebook
explorer.change                # what has come of it: both captions with their probabilities
explorer.force((2, 5), at=4)   # the same from Python; the notebook follows
explorer.save("page.html")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import anywidget
import traitlets

from caption.analysis.interventions import Intervention
from caption.analysis.interventions.selection import Place, Steps
from caption.captioner import Captioner
from caption.data.decoding import Photo
from caption.errors import UserError
from caption.explore.explorer import Explorer
from caption.result import Caption
from caption.visualize.page import save_html, to_html
from caption.visualize.page_data import look_record
from caption.visualize.page_script import joined_modules, page_style
from caption.visualize.styles import Look


class ExplorerWidget(anywidget.AnyWidget):
    """A photo with the captions of one or more models, whose attention is moved by hand.

    Args:
        captioners: by the name that the page shows; those of a single one may be "".
        photo: see `Captioner.describe`.
        name: of the photo.

    Raises:
        UserError: a decoder has no attention.
        caption.errors.ImageError: the photo cannot be read.
    """

    _esm = joined_modules("widget.js")
    _css = page_style("explore.css")
    look = traitlets.Dict().tag(sync=True)
    image = traitlets.Unicode().tag(sync=True)
    photos: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)

    def __init__(self, captioners: Mapping[str, Captioner], photo: Photo, name: str = "") -> None:
        self.explorers: dict[str, Explorer] = {}
        for model, captioner in captioners.items():
            self.explorers[model] = Explorer(captioner, photo, name=name)
            photo = self.explorers[model].photo.image
        first = next(iter(self.explorers.values()))
        super().__init__(look=look_record(Look()), image=first.image(), photos=self._records())
        self.on_msg(self._answer)

    @property
    def explorer(self) -> Explorer:
        """The first model's."""
        return next(iter(self.explorers.values()))

    @property
    def change(self) -> Intervention | None:
        """See `Explorer.change`; the first model's, as all that follows."""
        return self.explorer.change

    @property
    def original(self) -> Caption:
        """The caption without changes."""
        return self.explorer.original

    @property
    def caption(self) -> Caption:
        """The caption under the changes."""
        return self.explorer.caption

    def force(self, where: Place | str, at: Steps) -> None:
        """See `Explorer.force`."""
        self.explorer.force(where, at)
        self.photos = self._records()

    def look_at(self, thing: str, at: Steps) -> None:
        """See `Explorer.look_at`."""
        self.explorer.look_at(thing, at)
        self.photos = self._records()

    def mask(self, where: Place, at: Steps = None) -> None:
        """See `Explorer.mask`."""
        self.explorer.mask(where, at)
        self.photos = self._records()

    def erase(self, where: Place) -> None:
        """See `Explorer.erase`."""
        self.explorer.erase(where)
        self.photos = self._records()

    def undo(self) -> None:
        """Take back the last change."""
        self.explorer.undo()
        self.photos = self._records()

    def reset(self) -> None:
        """Take back all changes."""
        self.explorer.reset()
        self.photos = self._records()

    def to_html(self, title: str = "What the model says when it looks elsewhere") -> str:
        """A page of all captions side by side, without and under the changes, which works without Python."""
        columns = {}
        for model, explorer in self.explorers.items():
            prefix = f"{model}, " if model else ""
            columns[f"{prefix}as it is"] = [explorer.original]
            if explorer.changes:
                columns[f"{prefix}changed"] = [explorer.caption]
        first = self.explorer
        return to_html(columns, title, images=[first.photo.image], names=[first.name])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_html` to a file.

        Raises:
            OutputError: the file cannot be written.
        """
        save_html(self.to_html(), path)

    def _records(self) -> list[dict[str, Any]]:
        return [{**explorer.record(), "model": model} for model, explorer in self.explorers.items()]

    def _answer(self, widget: Any, request: dict[str, Any], buffers: Any) -> None:
        number = request.get("id")
        try:
            explorer = list(self.explorers.values())[request["model"]]
            explorer.answer(request)
        except UserError as error:
            self.send({"id": number, "error": str(error)})
            return
        self.photos = self._records()  # also for views of the widget that are opened later
        self.send({"id": number, "record": self.photos[request["model"]]})
