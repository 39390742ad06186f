"""Files are there whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from caption.errors import UserError
from caption.runtime.atomic import replacing


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_complete_file_takes_the_place_of_the_old_one(tmp_path: Path):
    path = tmp_path / "x.ckpt"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
        assert Path(file.name).parent == tmp_path  # a move from another file system could be cut short
    assert path.read_text() == "new"
    assert names(tmp_path) == ["x.ckpt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_whatever_interrupts_leaves_the_old_file(tmp_path: Path, error: type[BaseException]):
    path = tmp_path / "x.ckpt"
    path.write_text("old")

    def write() -> None:
        with replacing(path) as file:
            file.write(b"ne")
            raise error

    with pytest.raises(error):
        write()
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.ckpt"]


def test_it_is_on_the_disk_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done: list[str] = []
    sync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append("fsync") or sync(descriptor))
    monkeypatch.setattr(Path, "replace", lambda self, target: done.append("rename") or replace(self, target))
    with replacing(tmp_path / "x.ckpt") as file:
        file.write(b"new")
    assert done == ["fsync", "rename", "fsync"]  # the file; the folder


def test_a_full_disk_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "x.ckpt"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(
            UserError, match=r"x\.ckpt could not be written: No space left on device; .* unchanged"
        ),
        replacing(path) as file,
    ):
        file.write(b"new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.ckpt"]


def test_torch_hides_the_reason_behind_its_own_error(tmp_path: Path):
    resource = pytest.importorskip("resource")
    path = tmp_path / "x.ckpt"
    with replacing(path) as file:
        torch.save({"x": torch.zeros(10)}, file)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(UserError, match="File too large"), replacing(path) as file:
            torch.save({"x": torch.zeros(100_000)}, file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert torch.load(path, weights_only=True)["x"].shape == (10,)
