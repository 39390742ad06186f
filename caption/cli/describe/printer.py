"""Prints captions to stdout in five formats."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING

from caption.cli.printing import json_text
from caption.core.errors import printable
from caption.data.text_files import coco_id

if TYPE_CHECKING:
    from caption.results.caption import Caption

FORMATS = ("text", "json", "jsonl", "csv", "coco")
EMPTY = "(no words)"
"""The text format's line for a model that ends the caption at once; the other formats have an empty string."""
NOTHING_SEEN = "the lens recognises nothing in this photo"


class Printer:
    """Prints captions to stdout one at a time, and keeps none.

    Args:
        form: text, json, jsonl, csv or coco.
        model: the model as the user named it.
        several: whether lines of text begin with the name of the photo.
    """

    def __init__(self, form: str, model: str, several: bool) -> None:
        self.form, self.model, self.several = form, model, several
        self.separator = "[\n"
        columns = ("image", "text", "log_prob", "finished")
        self.table = csv.DictWriter(sys.stdout, columns, extrasaction="ignore", lineterminator="\n")
        if form == "csv":
            self.table.writeheader()

    def add(self, photo: str, caption: Caption, out_of_distribution: bool | None = None) -> None:
        """Print one caption; in text and CSV also its alternatives, one line each.

        Args:
            photo: its name.
            caption: of the photo.
            out_of_distribution: whether the photo is unlike the training photos; None = unknown. For JSON.
        """
        candidates = (caption, *caption.alternatives)
        about = {"image": photo, "model": self.model, "out_of_distribution": out_of_distribution}
        entry = about | caption.to_dict()
        if self.form == "text":
            for candidate in candidates:
                sentence = (str(candidate) or EMPTY) + _lens_column(candidate)
                print(f"{printable(photo)}\t{sentence}" if self.several else sentence)
        elif self.form == "csv":
            self.table.writerows({"image": photo, **candidate.to_dict()} for candidate in candidates)
        elif self.form == "jsonl":
            print(json_text(entry))
        else:
            if self.form == "coco":
                entry = {"image_id": coco_id(photo), "caption": caption.text}
            print(self.separator, json_text([entry], indent=1)[2:-2], sep="", end="")
            self.separator = ",\n"
        sys.stdout.flush()

    def finish(self) -> None:
        """Print the end of a document. Call it once, also after an error."""
        if self.form in ("json", "coco"):
            print("[]" if self.separator == "[\n" else "\n]")


def _lens_column(caption: Caption) -> str:
    """The lens's reading at the words that name things, after a tab; "" without a lens."""
    if caption.lens is None:
        return ""
    from caption.visualize.words import seen_at_words

    readings = [f"{word}: {reading}" for word, reading in seen_at_words(caption)]
    return f"\tsees {', '.join(readings)}" if readings else f"\t{NOTHING_SEEN}"
