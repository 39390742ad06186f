"""Only `caption.runtime.files` creates, replaces and deletes: the syntax trees of caption/ and tools/, and snippets."""

from __future__ import annotations

import ast

import pytest
from helpers.calls import ROOT, Call, matching, places

THE_PLACE = "caption/runtime/files.py"
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
IN_MEMORY = {"safetensors.numpy.save", "safetensors.torch.save"}
"""They return bytes."""
EXCEPTIONS = {
    "caption/export/onnx_files.py: graph.save": "into a private temporary folder, since torch takes no open file",
    "caption/runtime/inputs.py: os.open": "opens for reading, with flags that never wait",
    "caption/runtime/lock.py: FileLock": "the lock of a folder: a file of our own name, which never has content",
    "caption/runtime/on_ray.py: files.open_output_stream": "a bucket, which is not a file system of this machine",
}
"""Places outside, each with the reason."""


def is_write(call: Call) -> bool:
    """Whether a call may write to a file system or delete."""
    module, name = call.module, call.name
    if call.is_of_this_package or call.full_name in ("self.save", *IN_MEMORY):
        return False
    if name == "open" and call.opens_devnull:
        return False
    if name == "open" and module != "os":
        return call.opens_for_writing
    if module == "os" and name == "open":
        return ast.unparse(call.node.args[1]) != "os.O_RDONLY"
    if name in BY_METHOD or name in BY_MODULE.get(module, ()):
        return True
    if name in ("replace", "rename"):  # of a Path; strings take two arguments, records keywords
        return (
            isinstance(call.node.func, ast.Attribute) and len(call.node.args) == 1 and not call.node.keywords
        )
    if name in ("ZipFile", "TarFile", "GzipFile", "TarWriter"):
        return not call.has_open_file(0) and (name == "TarWriter" or call.opens_for_writing)
    if name in TO_FILE:
        return not call.has_open_file(1 if call.full_name == "torch.save" else TO_FILE[name])
    return False


def test_nothing_else_creates_replaces_or_deletes():
    found = places(is_write, ("caption", "tools"), but=THE_PLACE)
    elsewhere = found - set(EXCEPTIONS)
    assert not elsewhere, f"use caption.runtime.files or OwnFolder: {sorted(elsewhere)}"
    assert set(EXCEPTIONS) <= found, "exceptions that are none any more"


def test_the_one_place_is_seen():
    source = (ROOT / THE_PLACE).read_text(encoding="utf-8")
    assert {"os.link", "os.replace", "path.unlink"} <= set(matching(source, is_write))


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
    assert list(matching(snippet, is_write))


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
    assert not list(matching(snippet, is_write))
