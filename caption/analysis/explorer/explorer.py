"""The explorer: a photo, a model, and changes of its attention, one after the other.

    explorer = Explorer(captioner, "photo.jpg")
    explorer.force((2, 5), at="red")     # at "red" look at row 2, column 5
    print(explorer.caption)              # the caption under this change
    explorer.change                      # both captions, the probabilities of their words without and under the changes
    explorer.undo()
    explorer.look_at("saxophone", at=4)  # where the captioner's lens sees it

The photo is encoded once. A change keeps the words before the first one that it affects, and their steps are not
computed again. Steps, words and cells of a change refer to the caption that it was made on. A notebook's widget and the
server show explorers, and keep no state of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from PIL import Image

from caption.analysis.explorer.requests import Change, change_from, check, request_of, search_from
from caption.analysis.interventions import (
    NO_EDITS,
    EditedCaption,
    EncodedPhoto,
    Erase,
    Force,
    Intervention,
    LogProbs,
    Mask,
    compare,
)
from caption.analysis.interventions.encoded_photo import check_changes
from caption.analysis.interventions.selection import END_WORD, Place, Steps, steps_of, tokens_of
from caption.analysis.lens.lens import lens_of, regions_of
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.results.caption import Caption, json_number
from caption.results.lens_reading import LensReading
from caption.visualize.page import data_uri, shrunk, to_html
from caption.visualize.page_data import END_LABEL, photo_record

TITLE = "What the model says when it looks elsewhere"


class _Applied(NamedTuple):
    """An applied change and its result."""

    request: dict[str, Any]
    change: Change
    result: EditedCaption


class Explorer:
    """A photo whose caption is changed by moving the attention.

    Args:
        captioner: the model; it is not modified.
        photo: see `Captioner.describe`.
        name: of the photo, for pages.
        model: name of the model, for pages with several models side by side.
        watch: called before every step of the decoder that is computed. It may raise an exception to stop the work; the
            explorer is then as it was before.
        image: the photo, if it is decoded already.

    Raises:
        UserError: the decoder has no attention.
        caption.core.errors.ImageError: the photo cannot be read.
    """

    def __init__(
        self,
        captioner: Captioner,
        photo: Photo,
        name: str = "",
        model: str = "",
        watch: Callable[[], None] | None = None,
        image: Image.Image | None = None,
    ) -> None:
        self.photo = EncodedPhoto(captioner, photo, watch=watch, image=image)
        self.name, self.model = name, model
        # Of a model of transformers: what it is asked about the photo, or the text that it continues.
        self.question = str(getattr(getattr(captioner.decoder, "model", None), "question", ""))
        self._embedded = shrunk(self.photo.image)
        self._captioner = captioner
        self._applied: list[_Applied] = []
        self._compared: Intervention | None = None
        self._seen: LensReading | None = None
        self._subscribers: list[Callable[[], None]] = []
        self._begin(None)

    @property
    def original(self) -> Caption:
        """The caption without changes."""
        return self._original.caption

    @property
    def caption(self) -> Caption:
        """The caption under the changes."""
        return self._edited.caption

    @property
    def changes(self) -> tuple[Change, ...]:
        """The changes made, the first one first."""
        return tuple(applied.change for applied in self._applied)

    @property
    def change(self) -> Intervention | None:
        """Both captions, and the log-probability of each word without and under the changes; None without changes."""
        if self._applied and self._compared is None:
            self._compared = compare(self.photo, self._original, self._edited, self.changes)
        return self._compared

    @property
    def search(self) -> dict[str, Any] | None:
        """The search, in the form of `explorer.requests`; None = the model's own.

        Setting it takes back all changes, since they were made on captions of the other search.
        """
        return self._search_request

    @search.setter
    def search(self, request: dict[str, Any] | None) -> None:
        check(request, "Search")
        self._begin(request)
        self._changed()

    def subscribe(self, changed: Callable[[], None]) -> None:
        """Call a function after every change of the caption, from Python or from a page."""
        self._subscribers.append(changed)

    def force(self, where: Place | str, at: Steps) -> Explorer:
        """Look at a cell, a box in pixels, a map, or where another word looked. See `caption.analysis.Force`."""
        return self.apply(Force(where, at))

    def look_at(self, thing: str, at: Steps) -> Explorer:
        """Look where the captioner's lens sees a thing (`caption.analysis.lens`), named as in its table of nouns.

        Raises:
            UserError: the captioner has no lens, or the lens does not know the thing or sees it nowhere.
        """
        with _user_errors():
            steps = steps_of(at, self.caption)
            ordered = None if steps is None else sorted(steps)
            self._apply({"kind": "force", "steps": ordered, "thing": thing})
        return self._changed()

    def mask(self, where: Place, at: Steps = None) -> Explorer:
        """Do not look into a place, at some words or at all. See `caption.analysis.Mask`."""
        return self.apply(Mask(where, at))

    def erase(self, where: Place) -> Explorer:
        """Take regions out of the image. See `caption.analysis.Erase`."""
        return self.apply(Erase(where))

    def apply(self, change: Change) -> Explorer:
        """Apply a change to the current caption.

        Raises:
            UserError: it has no such place, step or word, no region would be left to look at, or it is a `Move`.
        """
        check_changes([change])
        with _user_errors():
            request = request_of(change, self.caption)
            of_word = isinstance(change, Force) and isinstance(change.where, str)
            self._apply(request, change if of_word else None)  # a word's map may be signed, unlike a place
        return self._changed()

    def undo(self) -> Explorer:
        """Take back the last change."""
        self._keep(len(self._applied) - 1)
        return self._changed()

    def reset(self) -> Explorer:
        """Take back all changes."""
        self._keep(0)
        return self._changed()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the changes that a page requests, and return the record that it shows.

        Args:
            request: {"changes": [...], "search": {...}}: all changes, and the search; see
                `caption.analysis.explorer.requests`. Changes at the start of the list that are already made are kept.

        Raises:
            UserError: the request is invalid. The explorer may have made some of its changes.
        """
        changes, search = request.get("changes", []), request.get("search")
        check(changes, "Changes", self.photo.watch)
        check(search, "Search")
        if search != self._search_request:
            self._begin(search)
        alike = [applied.request == wanted for applied, wanted in zip(self._applied, changes, strict=False)]
        self._keep([*alike, False].index(False))
        with _user_errors():
            for wanted in changes[len(self._applied) :]:
                self._apply(wanted)
        self._changed()
        return self.record()

    def record(self) -> dict[str, Any]:
        """The photo's record for a page, see `caption.visualize.page_data`, with `model`, `question`,
        `search` and `change`."""
        same = LogProbs(tokens_of(self.original), self._original.log_probs, self._original.log_probs)
        change = self.change
        return {
            **photo_record(
                self.caption, self.name, self.photo.image.size, self._embedded.size, self.original
            ),
            "model": self.model,
            "question": self.question,
            "search": self._search_request,
            "change": {
                "requests": [applied.request for applied in self._applied],
                "steps": [] if change is None else list(change.steps),
                "before": _sentence(same if change is None else change.original_log_probs),
                "after": None if change is None else _sentence(change.changed_log_probs),
            },
        }

    def image(self) -> str:
        """The photo as a page embeds it, a data URI."""
        return data_uri(self._embedded)

    def to_html(self, title: str = TITLE) -> str:
        """A page of both captions side by side, which works without Python (`caption.visualize.to_html`)."""
        return saved_page([self], title)

    @property
    def _edited(self) -> EditedCaption:
        return self._applied[-1].result if self._applied else self._original

    def _begin(self, request: dict[str, Any] | None) -> None:
        search = search_from(request, self._captioner.search)
        original = self._read(self.photo.caption(NO_EDITS, search))
        self._search, self._search_request, self._original = search, request, original
        self._keep(0)

    def _apply(self, request: dict[str, Any], change: Change | None = None) -> None:
        before, lens = self._edited, lens_of(self._captioner)
        where = None if lens is None else partial(lens.where, self.photo.encoded)
        change = change or change_from(request, before.caption, where)
        edits = before.edits.plus([change], before.caption)
        result = self._read(self.photo.caption(edits, self._search, before))
        self._applied, self._compared = [*self._applied, _Applied(request, change, result)], None

    def _keep(self, count: int) -> None:
        """Take back all changes after the first `count`."""
        if count < len(self._applied):
            self._applied, self._compared = self._applied[: max(count, 0)], None

    def _changed(self) -> Explorer:
        for changed in self._subscribers:
            changed()
        return self

    def _read(self, result: EditedCaption) -> EditedCaption:
        """The same, with the reading of the captioner's lens if it has one."""
        lens = lens_of(self._captioner)
        if lens is not None:
            regions = regions_of(self.photo.encoded, 0)
            self._seen = self._seen or lens.read_photo(regions, self.photo.image)
            result.caption.lens = lens.read_words(self._seen, regions, result.caption)
        return result


def saved_page(explorers: Sequence[Explorer], title: str = TITLE) -> str:
    """A page of the captions of several models for one photo side by side, without and under the changes."""
    columns, unchanged = {}, {}
    for explorer in explorers:
        asked = f"“{explorer.question}”" if explorer.question else ""
        prefix = "".join(f"{part}, " for part in (explorer.model, asked) if part)
        columns[f"{prefix}as it is"] = [explorer.original]
        if explorer.changes:
            columns[f"{prefix}changed"] = [explorer.caption]
            unchanged[f"{prefix}changed"] = [explorer.original]
    first = explorers[0]
    return to_html(columns, title, images=[first.photo.image], names=[first.name], unchanged=unchanged)


def _sentence(log_probs: LogProbs) -> dict[str, Any]:
    """A caption token by token."""
    return {
        "tokens": [END_LABEL if token == END_WORD else token for token in log_probs.tokens],
        "without": list(map(json_number, log_probs.without)),
        "under": list(map(json_number, log_probs.under)),
    }


@contextmanager
def _user_errors() -> Iterator[None]:
    """Raise a UserError if a caption does not have a step, word or place."""
    try:
        yield
    except ValueError as error:
        raise UserError(str(error)) from error
