"""Markdown documents with prose written by hand and sections written by tools.

A section stands between the lines `<!-- section NAME begins -->` and `<!-- section NAME ends -->`. Tools replace the
text between these two lines and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from caption.errors import UserError

MARKS = "<!-- section {} begins -->", "<!-- section {} ends -->"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def read_sections(document: Path) -> dict[str, str]:
    """The sections of a document by name."""
    begin, end = MARKS[0].format(r"([^\n]+?)"), MARKS[1].format(r"\1")
    text = document.read_text(encoding="utf-8")
    return {found[1]: found[2].strip() for found in re.finditer(rf"{begin}\n(.*?){end}", text, re.DOTALL)}


def write_sections(document: Path, sections: Mapping[str, str], template: Path | None = None) -> None:
    """Replace sections of a document.

    Args:
        document: the file to write.
        sections: texts by section name.
        template: the document whose prose is used; `document` itself by default.

    Raises:
        UserError: the document or the template lacks a section; nothing is written.
    """
    template = template or document
    text = template.read_text(encoding="utf-8")
    for name, section in sections.items():
        begin, end = (mark.format(name) for mark in MARKS)
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise UserError(f"{template} lacks the lines {begin} and {end}: put them where the tables belong")
        text = f"{before}{begin}\n\n{section.strip()}\n\n{end}{after}"
    document.write_text(text, encoding="utf-8")
