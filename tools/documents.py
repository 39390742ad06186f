"""Markdown documents with prose written by hand and sections written by tools.

A section is between the lines `<!-- section NAME begins -->` and `<!-- section NAME ends -->`. Tools replace the
text between these two lines and nothing else. A file that is not Markdown, such as a CSV file, is one section of its
own name.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from caption.analysis.table import AnalysisTable, Cell
from caption.core.errors import UserError
from caption.core.runtime.atomic_files import replacing

__all__ = ["csv_table", "read_sections", "table", "write_sections"]


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table in Markdown."""
    return AnalysisTable(head, list(map(list, rows))).markdown()


def csv_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table as the text of a CSV file."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([head, *rows])
    return file.getvalue()


MARKS = "<!-- section {} begins -->", "<!-- section {} ends -->"


def read_sections(document: Path) -> dict[str, str]:
    """The sections of a document by name."""
    begin, end = MARKS[0].format(r"([^\n]+?)"), MARKS[1].format(r"\1")
    text = document.read_text(encoding="utf-8")
    if document.suffix != ".md":
        return {document.name: text.strip()}
    return {match[1]: match[2].strip() for match in re.finditer(rf"{begin}\n(.*?){end}", text, re.DOTALL)}


def write_sections(document: Path, sections: Mapping[str, str]) -> None:
    """Replace sections of a document, by name.

    Raises:
        UserError: the document lacks a section; nothing is written.
    """
    text = document.read_text(encoding="utf-8") if document.suffix == ".md" else ""
    for name, section in sections.items():
        if document.suffix != ".md":
            text = f"{section.strip()}\n"
            continue
        begin, end = (mark.format(name) for mark in MARKS)
        before, _, following = text.partition(begin)
        _, mark, after = following.partition(end)
        if not mark:
            raise UserError(f"{document} lacks the lines {begin} and {end}: put them where the tables belong")
        text = f"{before}{begin}\n\n{section.strip()}\n\n{end}{after}"
    with replacing(document) as file:
        file.write(text.encode())
