"""Only `core.runtime.atomic_files` writes and deletes, and only `core.runtime.inputs` opens files to read them.

Elsewhere, a user's file could be lost, a pipe waited for, and a file of any size taken into memory.
Functions are banned by ruff (TID251 in pyproject.toml); here are methods of paths, and functions that take an open file
as well as a path.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLACES = "caption/core/runtime/"
EXCEPTIONS = {
    "caption/models/on_ray.py": "writes to buckets, through the file system of pyarrow",
    "caption/cli/configs.py": "comes with the package",
    "caption/models/export/onnx_files.py": "its own file; torch saves a graph into a private temporary folder",
    "caption/models/export/standalone.py": "this file is exported, and runs without the package",
    "tools/benchmark/foreign.py": "Linux forgets the peak of memory when a number is written",
    "tools/tables/tiny_captioners.py": "transformers writes the folder of its own model",
}
OF_PACKAGE = 'files("caption'
"""What importlib.resources finds."""
WRITES = re.compile(
    r"\.(write_text|write_bytes|touch|mkdir|chmod|unlink|rmdir|rename|symlink_to|hardlink_to|extractall|"
    r"to_csv|to_parquet|save_pretrained|imwrite|open_output_stream)\("
    r"|\b\w*path\.replace\((?![\"'])|(?<![\"'.\w])(torch|np)\.save\w*\((?!.*\bfile\)|file\b)|\bgraph\.save\("
    r"|\.savefig\((?!buffer|file)|\bopen\((?!os\.devnull)[^)]*[\"'][wax+]"
)
READS = re.compile(
    r"\.(read_text|read_bytes)\(|(?<![\w.])open\((?!os\.devnull)|\bpath\.open\("
    r"|\b(Image\.open|np\.load|torch\.load|ZipFile|tarfile\.open|gzip\.open)\((?!\{|file\b|content\b|fileobj|io\.|open_input)"
)


def found(pattern: re.Pattern[str], *folders: str) -> dict[str, str]:
    """The places of the code, without comments and docstrings, that match outside the places for it: file and line."""
    places = {}
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            code = re.sub(r'"""[\s\S]*?"""|\s#.*', "", path.read_text(encoding="utf-8"))
            lines = [line for line in code.splitlines() if pattern.search(line) and OF_PACKAGE not in line]
            name = path.relative_to(ROOT).as_posix()
            if lines and not name.startswith(PLACES):
                places[name] = lines[0].strip()
    return places


def test_nothing_else_writes_or_reads():
    writing, reading = found(WRITES, "caption", "tools"), found(READS, "caption")
    assert not writing.keys() - EXCEPTIONS, f"use caption.core.runtime.atomic_files or OwnFolder: {writing}"
    assert not reading.keys() - EXCEPTIONS, f"use caption.core.runtime.inputs: {reading}"
    assert set(EXCEPTIONS) <= writing.keys() | reading.keys()
