"""What commands print: tables on stdout, messages on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from caption.errors import printable


def say(verb: str, *lines: object) -> None:
    """Print a message to stderr, after the verb's name; further lines are indented."""
    text = "\n  ".join(map(printable, lines))
    print(f"caption {verb}: {text}", file=sys.stderr, flush=True)


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Rows of equal length as aligned columns, the first one to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in rows
    )
