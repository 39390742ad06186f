"""Calls in Python sources, found in their syntax trees, and the functions that they name."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRITING_MODE = re.compile(r"[rbtU]*[wax+][rwaxbt+]*([:|]\w*)?")
OPEN_FILE = re.compile(r"\b(BinaryIO|TextIO|IO|BytesIO|StringIO|ZipFile)\b")


class Call:
    """A call, with what the names of its module stand for."""

    def __init__(self, node: ast.Call, origins: dict[str, str], open_files: set[str]) -> None:
        self.node, self._open_files = node, open_files
        self.full_name = _full_name(node.func, origins)
        """`np.save` is "numpy.save", `path.unlink` is "path.unlink", `make().unlink` is ".unlink"."""
        self.module, _, self.name = self.full_name.rpartition(".")

    @property
    def is_of_this_package(self) -> bool:
        """Our own functions are looked at where they are defined."""
        return self.module.partition(".")[0] in ("caption", "tools")

    @property
    def opens_devnull(self) -> bool:
        return bool(self.node.args) and ast.unparse(self.node.args[0]) == "os.devnull"

    @property
    def opens_for_writing(self) -> bool:
        keywords = self.node.keywords
        given = [*self.node.args, *(keyword.value for keyword in keywords if keyword.arg == "mode")]
        texts = [
            each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        unknown = any(
            keyword.arg == "mode" and not isinstance(keyword.value, ast.Constant) for keyword in keywords
        )
        return unknown or any(WRITING_MODE.fullmatch(text) for text in texts)

    def has_open_file(self, place: int) -> bool:
        """Whether the argument at that place is an open file or a buffer."""
        if len(self.node.args) <= place:
            return False
        target = self.node.args[place]
        return (isinstance(target, ast.Name) and target.id in self._open_files) or OPEN_FILE.search(
            ast.unparse(target)
        ) is not None


def matching(source: str, is_match: Callable[[Call], bool]) -> Iterator[str]:
    """The functions of the calls in a module that match, as text without arguments."""
    tree = ast.parse(source)
    origins, open_files = _imports(tree), _open_files(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and is_match(Call(node, origins, open_files)):
            yield ast.unparse(node.func)


def places(is_match: Callable[[Call], bool], folders: tuple[str, ...], but: str) -> set[str]:
    """All calls that match in folders of the repository, without one file: "caption/x.py: np.save"."""
    return {
        f"{path.relative_to(ROOT).as_posix()}: {call}"
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if path != ROOT / but
        for call in matching(path.read_text(encoding="utf-8"), is_match)
    }


def _imports(tree: ast.AST) -> dict[str, str]:
    """What the imported names of a module stand for: {"np": "numpy", "copy": "shutil.copy"}."""
    origins = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.name if alias.asname else alias.name.partition(".")[0]
                origins[alias.asname or name] = name
        elif isinstance(node, ast.ImportFrom) and node.module:
            origins |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return origins


def _open_files(tree: ast.AST) -> set[str]:
    """Names that are bound to open files and buffers: by `with`, by annotation, or by making a buffer."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            names.add(node.optional_vars.id)
        elif isinstance(node, ast.arg) and node.annotation and OPEN_FILE.search(ast.unparse(node.annotation)):
            names.add(node.arg)
        elif isinstance(node, ast.Assign) and OPEN_FILE.search(ast.unparse(node.value)):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


def _full_name(function: ast.expr, origins: dict[str, str]) -> str:
    if isinstance(function, ast.Name):
        return origins.get(function.id, function.id)
    if isinstance(function, ast.Attribute):
        return f"{_full_name(function.value, origins)}.{function.attr}"
    return ""
