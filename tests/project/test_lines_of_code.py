"""The rooms stay within the bounds of the table in CONTRIBUTING.md, and the model is what one sees first."""

from __future__ import annotations

import re
from pathlib import Path

from tools.lines_of_code import MODEL, by_room, lines_of_code

ROOT = Path(__file__).parents[2]


def bounds() -> dict[tuple[str, ...], int]:
    """The rows: rooms, and their lines of code at most; not the goals beside them."""
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## How much there is\n")[2]
    rows = re.findall(
        r"^\| ([a-z ,]+) \| ([\d,]+) \| [\d,]+ \|$", section.partition("\n## ")[0], re.MULTILINE
    )
    return {tuple(rooms.split(", ")): int(lines.replace(",", "")) for rooms, lines in rows}


def test_lines_of_code_are_neither_text_nor_comments_nor_imports():
    text = '"""Doc."""\nimport a\n\nx = 1  # one\n"""Of x."""\n\n\ndef f():\n    """Doc."""\n    return (\n'
    text += "        x\n    )\n"
    assert lines_of_code(text) == 5


def test_every_room_is_within_its_bound_and_the_share_of_the_model_does_not_fall():
    lines, at_most = by_room(), bounds()
    assert sum(lines[room] for room in MODEL) >= 0.23 * (lines.total() - lines["foreign"])
    lines["all"] = lines.total()
    assert {room for rooms in at_most for room in rooms} == set(lines)
    too_many = {
        ", ".join(rooms): f"{sum(lines[room] for room in rooms)} lines of at most {most}"
        for rooms, most in at_most.items()
        if sum(lines[room] for room in rooms) > most
    }
    assert not too_many, "take something out; python -m tools.lines_of_code counts"
