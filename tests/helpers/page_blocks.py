"""The blocks of code in a page of docs/."""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def page_blocks(page: str, language: str) -> list[str]:
    """The text of each block of a language ("python", "yaml", "sh", "pycon", or "" for output), in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [block for named, block in blocks if named == language]
