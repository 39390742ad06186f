"""Tables that tools write into documents whose prose is written by hand."""

from __future__ import annotations

from pathlib import Path


def write_between(document: Path, tool: str, text: str) -> None:
    """Put `text` between the marks that name `tool`; they must be there, the prose around them is not the tool's.

    The marks are the lines `<!-- tools/NAME.py writes from here -->` and `<!-- tools/NAME.py writes to here -->`.
    """
    begin, end = (f"<!-- tools/{tool}.py writes {side} here -->" for side in ("from", "to"))
    head, found, rest = document.read_text(encoding="utf-8").partition(begin)
    _, found_end, tail = rest.partition(end)
    if not found or not found_end:
        raise SystemExit(f"{document} lacks the lines {begin} and {end}, between which the tables go")
    document.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail}", encoding="utf-8")
