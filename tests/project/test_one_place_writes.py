"""Only `caption.runtime.files` creates, replaces and deletes: the syntax trees of caption/ and tools/, and snippets."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
THE_PLACE = "caption/runtime/files.py"
WRITING_MODE = re.compile(r"[rbtU]*[wax+][rwaxbt+]*([:|]\w*)?")
BY_METHOD = {
    *("write_text", "write_bytes", "touch", "mkdir", "makedirs", "mkfifo", "truncate", "chmod", "unlink"),
    *("rmdir", "removedirs", "rmtree", "renames", "symlink", "symlink_to", "link", "hardlink_to"),
    *("link_to", "copyfile", "copytree", "copy2", "copymode", "copystat", "make_archive", "unpack_archive"),
    *("extractall", "open_output_stream", "to_csv", "to_parquet", "save_pretrained", "imwrite", "mkdtemp"),
    "mkstemp",
}
"""Names that write or delete, whatever they are called on."""
BY_MODULE = {
    "os": {"remove", "replace", "rename", "open", "chown", "mknod"},
    "shutil": {"copy", "move", "copyfileobj"},
    "tempfile": {"NamedTemporaryFile"},
    "logging": {"FileHandler"},
    "numpy": {"memmap"},
    "filelock": {"FileLock"},
    "nbformat": {"write"},
}
"""Names that do so only as functions of these modules. A TemporaryDirectory is new, private and deletes only itself."""
TO_FILE = {
    **dict.fromkeys(("save", "savefig", "savez", "savez_compressed", "savetxt"), 0),
    **dict.fromkeys(("save_file", "save_model"), 1),
}
"""Functions that take a path or an open file, and the place of that argument; with an open file they are harmless."""
OPEN_FILE = re.compile(r"\b(BinaryIO|TextIO|IO|BytesIO|StringIO|ZipFile)\b")

IN_MEMORY = {"safetensors.numpy.save", "safetensors.torch.save"}
"""They return bytes."""
EXCEPTIONS = {
    "caption/export/onnx_files.py: graph.save": "into a private temporary folder, since torch takes no open file",
    "caption/runtime/inputs.py: os.open": "opens for reading, with flags that never wait",
    "caption/runtime/lock.py: FileLock": "the lock of a folder: a file of our own name, which never has content",
    "caption/runtime/on_ray.py: files.open_output_stream": "a bucket, which is not a file system of this machine",
}
"""Places outside, each with the reason."""


def writes(source: str) -> Iterator[str]:
    """The calls in a module that may write to a file system or delete, as text without arguments."""
    tree = ast.parse(source)
    origins = _imports(tree)
    open_files = _open_files(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_write(node, origins, open_files):
            yield ast.unparse(node.func)


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


def _is_write(call: ast.Call, origins: dict[str, str], open_files: set[str]) -> bool:
    full = _full_name(call.func, origins)
    module, _, name = full.rpartition(".")
    if module.partition(".")[0] in ("caption", "tools") or full in ("self.save", *IN_MEMORY):
        return False  # our own functions are looked at where they are defined
    if name == "open" and call.args and ast.unparse(call.args[0]) == "os.devnull":
        return False
    if name == "open" and module != "os":
        return _opens_for_writing(call)
    if module == "os" and name == "open":
        return ast.unparse(call.args[1]) != "os.O_RDONLY"
    if name in BY_METHOD or name in BY_MODULE.get(module, ()):
        return True
    if name in ("replace", "rename"):  # of a Path; strings take two arguments, records keywords
        return isinstance(call.func, ast.Attribute) and len(call.args) == 1 and not call.keywords
    if name in ("ZipFile", "TarFile", "GzipFile", "TarWriter"):
        return not _has_open_file(call, 0, open_files) and (name == "TarWriter" or _opens_for_writing(call))
    if name in TO_FILE:
        return not _has_open_file(call, 1 if full == "torch.save" else TO_FILE[name], open_files)
    return False


def _full_name(function: ast.expr, origins: dict[str, str]) -> str:
    """`np.save` is "numpy.save", `path.unlink` is "path.unlink", `make().unlink` is ".unlink"."""
    if isinstance(function, ast.Name):
        return origins.get(function.id, function.id)
    if isinstance(function, ast.Attribute):
        return f"{_full_name(function.value, origins)}.{function.attr}"
    return ""


def _opens_for_writing(call: ast.Call) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    texts = [each.value for each in given if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    unknown = any(
        keyword.arg == "mode" and not isinstance(keyword.value, ast.Constant) for keyword in call.keywords
    )
    return unknown or any(WRITING_MODE.fullmatch(text) for text in texts)


def _has_open_file(call: ast.Call, place: int, open_files: set[str]) -> bool:
    if len(call.args) <= place:
        return False
    target = call.args[place]
    return (isinstance(target, ast.Name) and target.id in open_files) or OPEN_FILE.search(
        ast.unparse(target)
    ) is not None


def places() -> set[str]:
    """All such calls in caption/ and tools/, outside the one place."""
    return {
        f"{path.relative_to(ROOT).as_posix()}: {call}"
        for folder in ("caption", "tools")
        for path in (ROOT / folder).rglob("*.py")
        if path != ROOT / THE_PLACE
        for call in writes(path.read_text(encoding="utf-8"))
    }


def test_nothing_else_creates_replaces_or_deletes():
    found = places()
    elsewhere = found - set(EXCEPTIONS)
    assert not elsewhere, f"use caption.runtime.files or OwnFolder: {sorted(elsewhere)}"
    assert set(EXCEPTIONS) <= found, "exceptions that are none any more"


def test_the_one_place_is_seen():
    assert {"os.link", "os.replace", "path.unlink"} <= set(
        writes((ROOT / THE_PLACE).read_text(encoding="utf-8"))
    )


WRITING = """
open(path, 'w')
open(path, mode='ab')
open(path, mode=mode)
open(path, 'r+b')
path.open('xb')
io.open(path, 'wt')
gzip.open(path, 'wb')
tarfile.open(path, 'w:gz')
zipfile.ZipFile(path, 'w')
import os; os.open(path, os.O_RDWR | os.O_CREAT)
from os import remove; remove(path)
import os as o; o.replace(a, b)
path.replace(other)
path.rename(other)
path.write_text('x')
path.unlink()
make(path).parent.mkdir()
import shutil; shutil.copy(a, b)
from shutil import move as take; take(a, b)
shutil.rmtree(folder)
figure.savefig(path)
image.save(path)
import torch; torch.save(contents, path)
import numpy as np; np.savez(path, a=a)
from safetensors.torch import save_file; save_file(tensors, path)
archive.extractall(folder)
import tempfile; tempfile.NamedTemporaryFile()
files.open_output_stream(path)
os.symlink(a, b)
path.symlink_to(other)
path.touch()
"""


@pytest.mark.parametrize("snippet", WRITING.strip().splitlines())
def test_this_writes(snippet: str):
    assert list(writes(snippet))


HARMLESS = """
open(path)
open(path, 'rb')
path.open(encoding='utf-8')
Image.open(file)
tarfile.open(fileobj=stream, mode='r|*')
zipfile.ZipFile(path)
open(os.devnull, 'w')
import os; os.open(folder, os.O_RDONLY)
text.replace('a', 'b')
import dataclasses; dataclasses.replace(record, a=1)
from dataclasses import replace; replace(record, **changes)
words.remove(word)
import copy; copy.copy(record)
with creating(path) as file: torch.save(contents, file)
with creating(path) as file: image.save(file, 'PNG')
buffer = io.BytesIO(); figure.savefig(buffer)
def write(target: BinaryIO): np.save(target, array)
from safetensors.torch import save; save(tensors)
from caption import checkpoint; checkpoint.save(captioner, path)
"""


@pytest.mark.parametrize("snippet", HARMLESS.strip().splitlines())
def test_this_does_not(snippet: str):
    assert not list(writes(snippet))
