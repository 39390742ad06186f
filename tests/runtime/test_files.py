"""Files are there whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from caption.errors import UserError
from caption.runtime import files
from caption.runtime.files import MARK, OutputError, creating, replacing, replacing_own

Opened = Callable[[Path], AbstractContextManager[BinaryIO]]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_complete_file_takes_the_place_of_the_old_one(tmp_path: Path):
    path = tmp_path / "x.ckpt"
    path.write_text("old")
    with replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
        assert os.fstat(file.fileno()).st_dev == tmp_path.stat().st_dev  # a move could be cut short
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
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: done.append("fsync") or sync(descriptor))
    monkeypatch.setattr(os, "replace", lambda *names: done.append("rename") or replace(*names))
    (tmp_path / "x.ckpt").touch()
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


@pytest.fixture(params=["unnamed", "named"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of writing a file that has not its name yet."""
    if request.param == "named":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    return request.param


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("opened", [creating, replacing, replacing_own])
def test_no_name_but_its_own_is_touched(tmp_path: Path, opened: Opened):
    for name in ("x.ckpt.partial", ".x.ckpt.partial", "x.ckpt.tmp", "x-2.ckpt"):
        (tmp_path / name).write_text("mine")
    before = names(tmp_path)
    with opened(tmp_path / "x.ckpt") as file:
        file.write(b"new")
    assert names(tmp_path) == sorted([*before, "x.ckpt"])
    assert {(tmp_path / name).read_text() for name in before} == {"mine"}
    mode = stat.S_IMODE((tmp_path / "x.ckpt").stat().st_mode)
    (tmp_path / "plain").touch()
    assert mode == stat.S_IMODE((tmp_path / "plain").stat().st_mode)


@pytest.mark.usefixtures("way")
def test_a_private_file_stays_private(tmp_path: Path):
    path = tmp_path / "x.html"
    path.write_text(MARK)
    path.chmod(0o600)
    for opened in (replacing, replacing_own):
        with opened(path) as file:
            file.write(MARK.encode())
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("opened", [replacing, replacing_own])
def test_a_link_is_replaced_itself(tmp_path: Path, opened: Opened):
    (tmp_path / "target").write_text(MARK)
    (tmp_path / "x.html").symlink_to(tmp_path / "target")
    with opened(tmp_path / "x.html") as file:
        file.write(b"new")
    assert not (tmp_path / "x.html").is_symlink()
    assert (tmp_path / "x.html").read_text() == "new"
    assert (tmp_path / "target").read_text() == MARK


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("opened", [creating, replacing_own])
@pytest.mark.parametrize("kind", ["file", "link", "lost link"])
def test_what_appears_meanwhile_stays_and_so_does_the_result(tmp_path: Path, opened: Opened, kind: str):
    path, target = tmp_path / "x.html", tmp_path / "target"

    def write() -> None:
        with opened(path) as file:
            file.write(b"new")
            (tmp_path / "x-2.html").write_text("mine, too")
            if kind == "file":
                path.write_text("mine")
                return
            path.symlink_to(target)
            if kind == "link":
                target.write_text("mine")

    with pytest.raises(OutputError, match=r"x\.html appeared meanwhile.* result is in .*x-3\.html"):
        write()
    assert path.is_symlink() or path.read_text() == "mine"
    assert not target.exists() or target.read_text() == "mine"
    assert (tmp_path / "x-2.html").read_text() == "mine, too"
    assert (tmp_path / "x-3.html").read_text() == "new"


@pytest.mark.usefixtures("way")
def test_two_writers_of_one_path_do_not_mix(tmp_path: Path):
    path = tmp_path / "x.ckpt"
    contents = [bytes([number]) * 300_000 for number in range(8)]
    barrier = threading.Barrier(len(contents))

    def write(content: bytes) -> None:
        with replacing(path) as file:
            barrier.wait()
            for start in range(0, len(content), 1000):
                file.write(content[start : start + 1000])

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["x.ckpt"]


def test_only_new_files_are_created(tmp_path: Path):
    (tmp_path / "x").write_text("mine")
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    for name in ("x", "lost"):
        with pytest.raises(OutputError, match="exists: choose another name"), creating(tmp_path / name):
            pass
    assert (tmp_path / "x").read_text() == "mine"
    assert names(tmp_path) == ["lost", "x"]


def test_a_device_is_written_directly():
    with replacing("/dev/null") as file:
        file.write(b"gone")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_missing_folders_are_made_below_the_working_directory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    files.make_folder(Path("runs/a"), "--out")
    files.make_folder(tmp_path / "b", "--out")
    with pytest.raises(OutputError, match=rf"--out {tmp_path}/c/d: there is no folder {tmp_path}/c; make it"):
        files.make_folder(tmp_path / "c" / "d", "--out")
    with pytest.raises(OutputError, match="--out: the folder /proc/x cannot be made"):
        files.make_folder(Path("/proc/x"), "--out")
    with pytest.raises(OutputError, match="--out: the folder /proc cannot be written to"):
        files.make_folder(Path("/proc"), "--out")
    assert names(tmp_path) == ["b", "runs"]


def test_moving_replaces_nothing(tmp_path: Path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("mine")
    with pytest.raises(OutputError, match="cannot move"):
        files.move(tmp_path / "a", tmp_path / "b")
    files.move(tmp_path / "a", tmp_path / "c")
    assert {name: (tmp_path / name).read_text() for name in names(tmp_path)} == {"b": "mine", "c": "a"}
