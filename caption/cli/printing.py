"""Printing for commands: tables on stdout, messages on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any

from caption.core.errors import HIDDEN, printable

NOT_SHOWN = re.compile(f"{HIDDEN.pattern}|[\ud800-\udfff]")
"""Characters that JSON escapes, and halves of characters, which encode bytes of file names that are not Unicode."""


def say(verb: str, *lines: object) -> None:
    """Print a message to stderr, after the verb's name; further lines are indented."""
    text = "\n  ".join(map(printable, lines))
    print(f"caption {verb}: {text}", file=sys.stderr, flush=True)


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON with letters of all scripts unescaped, if stdout can encode them, and `HIDDEN` characters escaped."""
    is_unicode = (getattr(sys.stdout, "encoding", None) or "").lower().startswith("utf")
    lines = json.dumps(value, ensure_ascii=not is_unicode, indent=indent).split("\n")
    return "\n".join(NOT_SHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", line) for line in lines)


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length as aligned columns, the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )
