"""Lines of code by room: without docstrings (of attributes, too), comments, imports and blank lines.

python -m tools.lines_of_code
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
LAYOUT = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
}
"""Tokens that make no line of code."""
MODEL = ("attention", "decoders", "encoders", "objectives", "search", "kernels")


def lines_of_code(source: str) -> int:
    """Lines of a Python source that have code."""
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        is_text = isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)
        if is_text or isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - left_out)


def by_room() -> Counter[str]:
    """Lines of the folders of caption/, of its own files ("caption"), and of tools/."""
    rooms: Counter[str] = Counter()
    for path in (*(ROOT / "caption").rglob("*.py"), *(ROOT / "tools").rglob("*.py")):
        package, *folders = path.relative_to(ROOT).parts[:-1]
        rooms[folders[0] if folders and package == "caption" else package] += lines_of_code(
            path.read_text("utf-8")
        )
    return rooms


if __name__ == "__main__":
    for room, lines in (rooms := by_room()).most_common():
        print(f"{lines:6,d} {room}")
    model = sum(rooms[room] for room in MODEL)
    print(
        f"{rooms.total():6,d} all, of which the model has {model:,d}, {model / rooms.total():.0%}: {', '.join(MODEL)}"
    )
