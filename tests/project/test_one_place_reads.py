"""Only `caption.runtime.inputs` opens files to read them: the syntax trees of caption/, and snippets.

Elsewhere, a pipe or a device would be waited for, and a file of any size taken into memory.
"""

from __future__ import annotations

import ast

import pytest
from helpers.calls import ROOT, Call, matching, places

THE_PLACE = "caption/runtime/inputs.py"
FROM_FILE = {
    *("PIL.Image.open", "zipfile.ZipFile", "numpy.load", "numpy.fromfile", "numpy.loadtxt", "numpy.memmap"),
    *("torch.load", "safetensors.safe_open", "safetensors.torch.load_file", "safetensors.numpy.load_file"),
    *("tarfile.open", "gzip.open", "pandas.read_csv"),
}
"""Functions that take a path or an open file; with an open file they are harmless."""
CHECKED = "opened with open_input just before; the library takes a path only"
EXCEPTIONS = {
    "caption/checkpoint/files.py: safetensors.safe_open": CHECKED,
    "caption/encoders/weights.py: load_file": CHECKED,
    "caption/features/files.py: safe_open": CHECKED,
    "caption/runtime/archives.py: torch.load": "opened with open_input just before; from an open file it is slower",
    "caption/runtime/archives.py: zipfile.ZipFile": "all who call it have opened the file with open_input",
    "caption/kernels/linear.py: Path('/proc/cpuinfo').read_text": "a file of the system, at a fixed place",
    "caption/cli/configs.py: path.read_text": "comes with the package",
    "caption/text/nouns.py: (files('caption') / 'text' / name).read_text": "the same",
    "caption/analysis/lens/file.py: safetensors.safe_open": CHECKED,
    "caption/visualize/page_script.py: files('caption.visualize').joinpath('web').joinpath(name).read_text": "the same",
    "caption/export/onnx_files.py: Path(__file__).with_name('standalone.py').read_bytes": "the same",
    "caption/export/standalone.py: (folder / MODEL).read_text": "this file is exported, and runs without the package",
    "caption/export/standalone.py: Image.open": "the same",
}
"""Places outside, each with the reason."""


def is_read(call: Call) -> bool:
    """Whether a call opens a file to read it."""
    if call.is_of_this_package:
        return False
    if call.full_name in FROM_FILE:
        from_place = bool(call.node.args) and ast.unparse(call.node.args[0]).startswith("open_input(")
        keywords = [word.arg for word in call.node.keywords]
        return not (call.has_open_file(0) or from_place or "fileobj" in keywords)
    if call.name in ("read_text", "read_bytes"):  # of a Path; as a function they are our own
        return "." in call.full_name
    return (
        call.name == "open" and call.module != "os" and not call.opens_for_writing and not call.opens_devnull
    )


def test_nothing_else_opens_files_to_read():
    found = places(is_read, ("caption",), but=THE_PLACE)
    elsewhere = found - set(EXCEPTIONS)
    assert not elsewhere, f"use caption.runtime.inputs: {sorted(elsewhere)}"
    assert set(EXCEPTIONS) <= found, "exceptions that are none any more"


def test_the_one_place_is_seen():
    assert "open" in set(matching((ROOT / THE_PLACE).read_text(encoding="utf-8"), is_read))


@pytest.mark.parametrize(
    "snippet",
    [
        "open(path)",
        "path.open('rb')",
        "make(path).read_text()",
        "path.read_bytes()",
        "import numpy as np; np.load(path)",
        "from PIL import Image; Image.open(path)",
        "from safetensors import safe_open; safe_open(path, 'pt')",
        "import zipfile; zipfile.ZipFile(path)",
        "import tarfile; tarfile.open(path)",
    ],
)
def test_this_reads(snippet: str):
    assert list(matching(snippet, is_read))


@pytest.mark.parametrize(
    "snippet",
    [
        "open(path, 'w')",
        "open(os.devnull)",
        "import os; os.open(folder, os.O_RDONLY)",
        "from caption.data.files import read_text; read_text(path)",
        "from PIL import Image\nwith open_input(path, PHOTO) as file: Image.open(file)",
        "import tarfile; tarfile.open(fileobj=stream)",
        "import io; from PIL import Image; Image.open(io.BytesIO(data))",
        "import json; json.load(file)",
    ],
)
def test_this_does_not(snippet: str):
    assert not list(matching(snippet, is_read))
