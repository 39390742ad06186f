"""Imports point one way: the import graph of the package against the layers in docs/architecture.md.

Imports inside functions and for types count: what cannot be imported at the top is in the wrong file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "caption"
DRAWN = {("results", "visualize"), ("captioner", "models")}
"""The exceptions, which are imported when asked for: results draw themselves, and captioners come from the hub."""
ENTRIES = {"caption", "caption.__main__"}
"""The public names and the command: above everything."""


@cache
def layers() -> dict[str, int]:
    """The layer of each room, from the table in docs/architecture.md."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([a-z_., ]+) \|$", text, re.MULTILINE)
    return {room: int(layer) for layer, rooms in rows for room in rooms.split(", ")}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, modules: Iterable[str]) -> set[str]:
    """Those of `modules` that a source imports, at the top, in functions or for types."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if names <= set(modules) else names | {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & set(modules)


@cache
def graph() -> dict[str, set[str]]:
    """For each module of the package, those that it imports."""
    paths = {module_name(path): path for path in PACKAGE.rglob("*.py")}
    return {
        module: imported(path.read_text(encoding="utf-8"), paths.keys() - ENTRIES)
        for module, path in paths.items()
        if module not in ENTRIES
    }


def room(module: str) -> str:
    """The row of the table that a module belongs to: the longest name that it begins with."""
    parts = module.split(".")[1:]
    names = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    return next((name for name in names if name in layers()), parts[0])


def test_every_room_has_a_layer_and_every_layer_its_rooms():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py"} - {"__init__", "__main__"}
    rooms |= {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    inner = {name for name in layers() if "." in name}
    assert rooms == set(layers()) - inner
    assert all((PACKAGE / name.replace(".", "/") / "__init__.py").exists() for name in inner)


def test_no_room_imports_a_higher_one():
    wrong = [
        f"{module} imports {target}"
        for module, targets in graph().items()
        for target in targets
        if layers()[room(target)] > layers()[room(module)] and (room(module), room(target)) not in DRAWN
    ]
    assert not wrong, "\n".join(wrong)


def test_there_is_no_circle():
    """Of rooms or of modules, but for results, which draw themselves. Packages re-export their own modules."""
    packages = {module_name(path) for path in PACKAGE.rglob("__init__.py")}
    imports = [(module, target) for module, targets in graph().items() for target in targets]
    imports = [(module, target) for module, target in imports if (room(module), room(target)) not in DRAWN]
    between = [(room(module), room(target)) for module, target in imports if room(module) != room(target)]
    for edges in (between, [edge for edge in imports if not packages.intersection(edge)]):
        sorter: TopologicalSorter[str] = TopologicalSorter()
        for source, target in edges:
            sorter.add(source, target)
        sorter.prepare()  # raises CycleError


def test_results_and_captioners_open_without_the_drawing():
    for name in ("results/caption", "results/captions", "captioner"):
        body = ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8")).body
        at_the_top = [ast.unparse(node) for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not [line for line in at_the_top if "caption.visualize" in line]
