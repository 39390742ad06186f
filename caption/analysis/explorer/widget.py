"""The explorer in a notebook, an anywidget over the same page code.

widget = caption.explore(captioner, "photo.jpg")
widget                            # click or paint in the notebook
explorer = widget.explorer
explorer.change                   # the result: both captions with their probabilities
explorer.force((2, 5), at=4)      # the same from Python; the notebook follows
widget.save("page.html")
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from caption.analysis.explorer.explorer import TITLE, Explorer, saved_page
from caption.captioner import Captioner
from caption.core.errors import UserError, optional_package
from caption.data.photos import Photo
from caption.visualize.page import save_html
from caption.visualize.page_data import style_record
from caption.visualize.page_script import joined_modules, page_style
from caption.visualize.styles import OverlayStyle

with optional_package("explore", "'show-attend-and-tell[notebooks]'"):
    import anywidget
    import jsonschema as jsonschema  # checks the page's requests
    import traitlets


class ExplorerWidget(anywidget.AnyWidget):
    """A view of one photo's explorers side by side, one for each model.

    Args:
        explorers: at least one.
    """

    _esm = joined_modules("widget.js")
    _css = page_style("explore.css")
    styles = traitlets.Dict().tag(sync=True)
    image = traitlets.Unicode().tag(sync=True)
    photos: traitlets.List[dict[str, Any]] = traitlets.List().tag(sync=True)

    def __init__(self, *explorers: Explorer) -> None:
        self.explorers = explorers
        super().__init__(styles=style_record(OverlayStyle()), image=self.explorer.image())
        self._show()
        for explorer in explorers:
            explorer.subscribe(self._show)
        self.on_msg(self._answer)

    @property
    def explorer(self) -> Explorer:
        """The first model's."""
        return self.explorers[0]

    def to_html(self, title: str = TITLE) -> str:
        """A page of all captions side by side, without and under the changes, which works without Python."""
        return saved_page(self.explorers, title)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_html` to a file.

        Raises:
            OutputError: the file cannot be written.
        """
        save_html(self.to_html(), path)

    def _show(self) -> None:
        self.photos = [explorer.record() for explorer in self.explorers]

    def _answer(self, widget: Any, request: dict[str, Any], buffers: Any) -> None:
        try:
            answer = {"record": self.explorers[request["model"]].answer(request)}
        except UserError as error:
            answer = {"error": str(error)}
        self.send({"id": request["id"], **answer})


def explore(
    captioner: Captioner, photo: Photo, beside: Mapping[str, Captioner] | None = None, name: str = ""
) -> ExplorerWidget:
    """A notebook's widget in which a model's attention is moved by hand, and the sentence follows.

    Args:
        captioner: the model; it is not modified.
        photo: see `Captioner.describe`.
        beside: other models by name, on the same photo; the first one is then called "this".
        name: of the photo.

    Raises:
        UserError: anywidget is not installed, or a decoder has no attention.
        caption.core.errors.ImageError: the photo cannot be read.
    """
    first = Explorer(captioner, photo, name, "this" if beside else "")
    further = [
        Explorer(model, photo, name, label, image=first.photo.image)
        for label, model in (beside or {}).items()
    ]
    return ExplorerWidget(first, *further)
