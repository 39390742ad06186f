"""The captions of several photos: a list that a notebook shows as a gallery, and that becomes a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

from caption.core.errors import first_few, optional_package
from caption.results.caption import CELL_COLUMNS, WORD_COLUMNS, Caption, cell_rows, photo_path, word_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from caption.data.photos import Photo

SHOWN = 24
"""How many photos a notebook shows: each takes up to 400 KB of it."""


class Captions(list[Caption]):
    """A list of captions. Its slices are `Captions`, too."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> Caption: ...

    @overload
    def __getitem__(self, index: slice) -> Captions: ...

    def __getitem__(self, index: SupportsIndex | slice) -> Caption | Captions:
        item = super().__getitem__(index)
        return Captions(item) if isinstance(item, list) else item

    def __repr__(self) -> str:
        if not self:
            return "Captions(none)"
        count = f"{len(self)} photo" + "s" * (len(self) != 1)
        return f"Captions({count}: {first_few(repr(str(caption)) for caption in self)})"

    def plot(self, images: Sequence[Photo] | None = None, **options: Any) -> Figure:
        """Each photo beside its attention, or, with `words=4`, the maps of words (`caption.visualize.contact_sheet`).

        Args:
            images: the photos; by default those that the captions carry.
            options: passed on to `contact_sheet`, such as `words=["man"]` or `style="paper"`.

        Raises:
            ValueError: there are no captions, or one carries no photo.
            caption.core.errors.ImageError: a photo cannot be opened.
        """
        from caption.visualize.contact_sheet import contact_sheet

        return contact_sheet(self, images, **options)

    def to_html(self, title: str = "Where the model looked", **options: Any) -> str:
        """A complete interactive page of all photos (`caption.visualize.to_html`, to which options go).

        Raises:
            ValueError: there are no captions, or one carries no photo.
            caption.core.errors.ImageError: a photo cannot be opened.
        """
        from caption.visualize.page import to_html

        return to_html(self, title, **options)

    def _repr_html_(self) -> str | None:
        """The gallery of the first photos; None without any, so that the notebook prints the list."""
        if not self or any(caption.image is None for caption in self):
            return None
        from caption.visualize.page import to_fragment

        more = len(self) - SHOWN
        note = f"<p>{more} more photos: show captions[{SHOWN}:]</p>" if more > 0 else ""
        return to_fragment(list(self[:SHOWN])) + note

    def to_frame(self, by: Literal["photo", "word", "cells"] = "photo") -> DataFrame:
        """The captions as a pandas DataFrame.

        Args:
            by: "photo": a row for each photo, with `image`, `text`, `length` in words, `log_prob`, `finished`, and the
                word with the largest weight, `sharpest`, with this weight, `peak`. "word": a row for each word, with
                `image`, `photo`, its place in the list from 0, `step` from 0, `word`, `log_prob`, `gate` (NaN without
                a gate), `peak`, and the `row` and `column` of the cell with this weight. "cells": a row for each cell
                of each word's map, with `image`, `photo`, `step`, `word`, `row`, `column` and `weight`, ready for
                seaborn and Altair.

        Raises:
            UserError: pandas is not installed.
            ValueError: `by` is something else.
        """
        if by not in ("photo", "word", "cells"):
            raise ValueError(f'by is "photo", "word" or "cells", not {by!r}')
        with optional_package("to_frame()", "pandas"):
            import pandas
        if by == "photo":
            return pandas.DataFrame([_photo_row(caption) for caption in self], columns=_PHOTO_COLUMNS)
        rows, columns = (word_rows, WORD_COLUMNS) if by == "word" else (cell_rows, CELL_COLUMNS)
        return pandas.DataFrame(
            [row for index, caption in enumerate(self) for row in rows(caption, index)], columns=columns
        )


_PHOTO_COLUMNS = ["image", "text", "length", "log_prob", "finished", "sharpest", "peak"]


def _photo_row(caption: Caption) -> dict[str, Any]:
    words = word_rows(caption, 0)
    sharpest = max(words, key=lambda row: abs(row["peak"]), default={"word": None, "peak": None})
    return {
        "image": photo_path(caption),
        "text": caption.text,
        "length": len(caption.words),
        "log_prob": caption.log_prob,
        "finished": caption.finished,
        "sharpest": sharpest["word"],
        "peak": sharpest["peak"],
    }
