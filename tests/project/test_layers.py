"""Imports point one way: the import graph of the package against the layers in docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "caption"
LAZY = {
    ("result", "visualize"),
    ("captions", "visualize"),
    ("analysis", "visualize"),
    ("captioner", "explore"),
}
"""The exceptions: results draw themselves and captioners open an explorer; they import that only when asked to."""


@cache
def layers() -> dict[str, int]:
    """The layer of each room, from the table in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([a-z_., ]+) \|$", text, re.MULTILINE)
    return {room: int(layer) for layer, rooms in rows for room in rooms.split(", ")}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, modules: set[str], types: bool = False) -> set[str]:
    """The package's modules that a file imports, at the top or in functions, and perhaps for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in for_types and not types:
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                full if (full := f"{node.module}.{alias.name}") in modules else node.module
                for alias in node.names
            }
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


def room(module: str) -> str:
    """The folder or file below `caption/`; a file with a row of its own in the table is its own room."""
    name = module.partition(".")[2]
    return name if name in layers() else name.partition(".")[0]


def graph() -> dict[str, dict[str, str]]:
    """For each room, the rooms that it imports, for types, too, each with the modules that do so."""
    paths = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    entries = {"caption", "caption.__main__"}  # the public names and the command: above everything
    edges: dict[str, dict[str, str]] = defaultdict(dict)
    for module, path in paths.items():
        for target in imported(path, set(paths), types=True) - entries:
            if module not in entries and room(target) != room(module):
                edges[room(module)][room(target)] = f"{module} imports {target}"
    return edges


def test_every_room_has_a_layer_and_every_layer_its_rooms():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py"} - {"__init__", "__main__"}
    rooms |= {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    own = {name for name in layers() if "." in name}
    assert rooms == set(layers()) - own
    assert all((PACKAGE / f"{name.replace('.', '/')}.py").exists() for name in own)


def test_no_room_imports_a_higher_one():
    order = layers()
    wrong = [
        how
        for source, targets in graph().items()
        for target, how in targets.items()
        if order[target] > order[source] and (source, target) not in LAZY
    ]
    assert not wrong, "\n".join(wrong)


def test_results_import_the_drawing_when_they_draw():
    for source, target in LAZY:
        for path in [PACKAGE / f"{source}.py", *(PACKAGE / source).rglob("*.py")]:
            body = ast.parse(path.read_text(encoding="utf-8")).body if path.exists() else []
            at_the_top = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
            assert not [node for node in at_the_top if f"caption.{target}" in ast.unparse(node)], path


def test_rooms_of_one_layer_make_no_circle():
    edges = {
        source: {target for target in targets if (source, target) not in LAZY}
        for source, targets in graph().items()
    }
    TopologicalSorter(edges).prepare()  # raises CycleError


def test_no_modules_of_a_room_make_a_circle():
    """Lazy imports included: what cannot be imported at the top is in the wrong file."""
    paths = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    packages = {
        module_name(path) for path in PACKAGE.rglob("__init__.py")
    }  # they re-export their own modules
    edges = {
        module: imported(path, set(paths)) - packages
        for module, path in paths.items()
        if module not in packages
    }
    for module in edges:
        edges[module] = {target for target in edges[module] if (room(module), room(target)) not in LAZY}
    TopologicalSorter(edges).prepare()  # raises CycleError


@pytest.mark.parametrize("module", ["caption.analysis", "caption.metrics", "argparse"])
def test_data_does_not_import(module: str):
    for path in (PACKAGE / "data").rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not re.match(rf"\s*(from|import) {re.escape(module)}\b", line), f"{path}: {line}"


def test_library_modules_do_not_import_the_command_line():
    for path in PACKAGE.rglob("*.py"):
        if "cli" not in path.parts and path.name != "__main__.py":
            assert "caption.cli" not in re.sub(r'"""[\s\S]*?"""', "", path.read_text(encoding="utf-8")), path


def test_the_check_would_see_a_lazy_import(tmp_path: Path):
    file = tmp_path / "wrong.py"
    file.write_text("def f():\n    from caption.cli import main\n    import caption.search.beam\n")
    assert imported(file, {"caption.cli.main", "caption.search.beam"}) == {
        "caption.cli.main",
        "caption.search.beam",
    }
