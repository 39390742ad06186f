"""Markdown documents with prose written by hand and sections written by tools.

A section stands between the lines `<!-- section NAME begins -->` and `<!-- section NAME ends -->`. Tools replace the
text between these two lines and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def read_sections(document: Path) -> dict[str, str]:
    """The sections of a document by name; none where there is no document."""
    text = document.read_text(encoding="utf-8") if document.exists() else ""
    names = re.findall(r"^<!-- section (.+) begins -->$", text, re.MULTILINE)
    return {name: _split(text, name)[1].strip() for name in names}


def write_sections(document: Path, sections: Mapping[str, str], template: Path | None = None) -> None:
    """Replace sections of a document.

    Args:
        document: the file to write.
        sections: texts by section name.
        template: the document whose prose is used; `document` itself by default.

    Raises:
        SystemExit: the document or the template lacks a section; nothing is written.
    """
    text = (template or document).read_text(encoding="utf-8")
    for name, section in sections.items():
        before, _, after = _split(text, name)
        if not after:
            marks = " and ".join(_marks(name))
            raise SystemExit(
                f"{template or document} lacks the lines {marks}: put them where the tables belong"
            )
        text = before + _marked(name, section) + after
    document.write_text(text, encoding="utf-8")


def add_section(document: Path, name: str, text: str, after: str | None = None) -> None:
    """Write a section, which a new document or one without it gets behind the section `after`, or else at its end."""
    found = read_sections(document)
    if name in found:
        write_sections(document, {name: text})
        return
    whole = document.read_text(encoding="utf-8") if document.exists() else ""
    head, tail = (whole.rstrip("\n"), "\n")
    if after in found:
        head, mark, tail = whole.partition(_marks(after)[1])
        head += mark
    document.parent.mkdir(parents=True, exist_ok=True)
    document.write_text(f"{head}\n\n{_marked(name, text)}{tail}".lstrip("\n"), encoding="utf-8")


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- section {name} begins -->", f"<!-- section {name} ends -->"


def _marked(name: str, text: str) -> str:
    begin, end = _marks(name)
    return f"{begin}\n\n{text.strip()}\n\n{end}"


def _split(text: str, name: str) -> tuple[str, str, str]:
    """What stands before, in and behind a section; the last is empty if the section is not there."""
    begin, end = _marks(name)
    before, _, rest = text.partition(begin)
    section, found, after = rest.partition(end)
    return before, section, after or "\n" if found else ""
