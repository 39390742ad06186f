"""Own data as JSON lines: one object a line, with an image, one or more captions and, optionally, a split."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caption.data.files import field, text_lines
from caption.data.readers.captions import Findings
from caption.data.readers.tables import Row, Table
from caption.errors import DataError

CAPTIONS = "captions"


@dataclass
class JsonLines(Table):
    """Lines like `{"image": "a.jpg", "caption": "A dog.", "split": "train"}`.

    A caption may be a string or a list of strings; its key may also be `captions`. Several lines may name the same
    image. Other keys are ignored.

    Args:
        file: the file, in UTF-8.
        images: the folder that image names are relative to; None = the file's own.
        image_key: key of the image's name.
        caption_key: key of the caption or captions.
        split_key: key of the split: train, val or test. All lines have it, or none.
        fractions: for a file without splits, the share of each split: `{train: 0.8, val: 0.1, test: 0.1}`; None =
            all images are training images.
    """

    file: str
    images: str | None = None
    image_key: str = "image"
    caption_key: str = "caption"
    split_key: str = "split"
    fractions: dict[str, float] | None = None

    def rows(self, file: Path, findings: Findings) -> Iterator[Row]:
        for number, line in text_lines(file):
            with findings.skipping():
                yield self._row(number, line, f"line {number} of '{file}'")

    def _row(self, number: int, line: str, where: str) -> Row:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{where} is not JSON: {error.msg}. Correct or delete it.") from None
        if not isinstance(entry, dict):
            raise DataError(f"{where} is not a JSON object with '{self.image_key}'. Correct or delete it.")
        image = field(entry, self.image_key, str, where).strip()
        if not image:
            raise DataError(f"{where} names no image. Write its '{self.image_key}'.")
        split = None
        if entry.get(self.split_key) is not None:
            split = field(entry, self.split_key, str, where).strip()
        return Row(number, image, self._captions(entry, where), split)

    def _captions(self, entry: dict[str, Any], where: str) -> tuple[str, ...]:
        key = CAPTIONS if self.caption_key not in entry and CAPTIONS in entry else self.caption_key
        found = field(entry, key, (str, list), where)
        captions = [found] if isinstance(found, str) else found
        if not all(isinstance(caption, str) for caption in captions):
            raise DataError(f"{where} has captions that are not text. Correct them.")
        return tuple(captions)
