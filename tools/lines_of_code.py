"""Lines of code of each room of caption/, and of tools/, with the model's share: `python -m tools.lines_of_code`.

Docstrings (of attributes, too), comments, imports and blank lines do not count.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODEL = ("attention", "decoders", "encoders", "objectives", "search", "kernels")
NOTHING = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def lines_of_code(text: str) -> int:
    """Of one module."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOTHING:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom) or (is_text and isinstance(node.value.value, str)):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def main() -> None:
    rooms: Counter[str] = Counter()
    for path in (path for package in ("caption", "tools") for path in (ROOT / package).rglob("*.py")):
        package, *rest = path.relative_to(ROOT).parts
        room = "tools" if package == "tools" else rest[0] if len(rest) > 1 else "captioner, result, ..."
        rooms[room] += lines_of_code(path.read_text(encoding="utf-8"))
    total = rooms.total()
    for room, count in rooms.most_common():
        print(f"{count:7,}  {room}")
    print(
        f"{total:7,}  all, of which the model ({', '.join(MODEL)}) {sum(map(rooms.get, MODEL)) / total:.0%}"
    )


if __name__ == "__main__":
    main()
