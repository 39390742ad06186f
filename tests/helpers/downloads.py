"""Small downloads in all published forms, and the command that prepares them."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from caption.cli.main import main
from caption.data.prepare.datasets import DATASETS, Dataset


def photo(number: int) -> bytes:
    """A JPEG with a unique colour and size."""
    data = io.BytesIO()
    Image.new("RGB", (20 + number, 16), (10 * number % 256, 90, 200)).save(data, "JPEG")
    return data.getvalue()


def make_zip(path: Path, files: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def make_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz" if path.name.endswith("gz") else "w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def make_folder(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """All files below a folder, without its lock and its list of files."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.name.startswith(".caption")
    }


def karpathy(splits: Mapping[str, list[str]], folder: Callable[[str], str] | None = None) -> bytes:
    """One of Karpathy's files, with two captions for each photo."""
    images: list[dict[str, Any]] = []
    for split, names in splits.items():
        for name in names:
            image = {"filename": name, "split": split, "sentences": [{"raw": "One."}, {"raw": "Another."}]}
            images.append(image | ({"filepath": folder(name), "cocoid": len(images)} if folder else {}))
    return json.dumps({"images": images}).encode()


def small(name: str, photos: list[int], captions: list[int], splits: list[int]) -> Dataset:
    """A published data set with other numbers, in the order of its table."""
    dataset = copy(DATASETS[name])
    prefixes = ((folder, prefix) for folder, (prefix, _) in dataset.photos.items())
    dataset.photos = {
        folder: (prefix, count) for (folder, prefix), count in zip(prefixes, photos, strict=True)
    }
    sources = zip(dataset.captions, captions, strict=True)
    dataset.captions = [replace(source, number=count) for source, count in sources]
    dataset.splits = dict(zip(dataset.splits, splits, strict=True))
    return dataset


def prepare(
    dataset: Dataset | None, name: str, out: Path, *downloads: object, check_only: bool = False
) -> int:
    """The exit code of `caption prepare NAME`; `dataset` replaces the numbers of the published one."""
    options = ["--check-only"] if check_only else []
    with pytest.MonkeyPatch.context() as patch:
        if dataset is not None:
            patch.setitem(DATASETS, name, dataset)
        return main(["prepare", name, *map(str, downloads), "--out", str(out), *options])
