"""Files are there whole or not at all, and only what is as this package wrote it is replaced."""

from __future__ import annotations

import os
import stat
import threading
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest
import torch
from helpers.own_files import save_own, write_own
from helpers.tiny_captioner import photo
from PIL import Image, features

from caption.core.errors import UserError
from caption.core.runtime import files
from caption.core.runtime.files import MARK, OutputError, creating, is_own, replacing, replacing_own, seal
from caption.core.runtime.outputs import marked
from caption.core.runtime.safe_loading import load_tensors
from caption.results.caption import Caption

Opened = Callable[[Path], AbstractContextManager[BinaryIO]]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- writing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [None, KeyboardInterrupt, ValueError])
def test_a_file_is_replaced_when_it_is_complete_or_stays(tmp_path: Path, error: type[BaseException] | None):
    path = tmp_path / "x.ckpt"
    path.write_text("old")
    with pytest.raises(error) if error else nullcontext(), replacing(path) as file:
        file.write(b"new")
        assert path.read_text() == "old"
        assert os.fstat(file.fileno()).st_dev == tmp_path.stat().st_dev  # a move could be cut short
        if error is not None:
            raise error
    assert path.read_text() == ("new" if error is None else "old")
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


@pytest.mark.parametrize("by_torch", [True, False])
def test_a_full_disk_is_a_sentence(tmp_path: Path, by_torch: bool):
    """torch.save hides the reason behind an error of its own."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "x.ckpt"
    path.write_text("old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    said = r"x\.ckpt could not be written: File too large; the file of that name is unchanged"
    try:
        with pytest.raises(UserError, match=said), replacing(path) as file:  # noqa: PT012
            if by_torch:
                torch.save({"x": torch.zeros(100_000)}, file)
            file.write(bytes(200_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["x.ckpt"]


@pytest.mark.parametrize("links", [True, False], ids=["links", "no hard links"])
@pytest.mark.parametrize("opened", [creating, replacing, replacing_own])
def test_no_name_but_its_own_is_touched(
    tmp_path: Path, opened: Opened, links: bool, monkeypatch: pytest.MonkeyPatch
):
    if not links:
        monkeypatch.setattr(os, "link", lambda *_, **__: os.stat("/dev/null/x"))  # raises an OSError
    before = ["x.ckpt.partial", ".x.ckpt.partial", "x.ckpt.tmp", "x-2.ckpt"]
    for name in before:
        (tmp_path / name).write_text("mine")
    with opened(tmp_path / "x.ckpt") as file:
        file.write(b"new")
    assert names(tmp_path) == sorted([*before, "x.ckpt"])
    assert {(tmp_path / name).read_text() for name in before} == {"mine"}
    (tmp_path / "plain").touch()
    assert (tmp_path / "x.ckpt").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("opened", [replacing, replacing_own])
def test_a_link_is_replaced_itself_and_a_private_file_stays_private(tmp_path: Path, opened: Opened):
    path, target = tmp_path / "x.html", tmp_path / "target"
    write_own(target)
    target.chmod(0o600)
    before = target.read_bytes()
    path.symlink_to(target)
    with opened(path) as file:
        file.write(b"new")
    assert not path.is_symlink()
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o600)
    assert target.read_bytes() == before


@pytest.mark.parametrize("opened", [creating, replacing_own])
@pytest.mark.parametrize("kind", ["file", "link", "lost link"])
def test_what_appears_meanwhile_stays_and_so_does_the_result(tmp_path: Path, opened: Opened, kind: str):
    path, target = tmp_path / "x.html", tmp_path / "target"
    if kind == "link":
        target.write_text("mine")
    said = r"x\.html appeared meanwhile.* result is in .*x-3\.html"
    with pytest.raises(OutputError, match=said), opened(path) as file:  # noqa: PT012
        file.write(b"new")
        (tmp_path / "x-2.html").write_text("mine, too")
        if kind == "file":
            path.write_text("mine")
        else:
            path.symlink_to(target)
    assert path.read_text() == "mine" if kind == "file" else path.is_symlink()
    assert target.exists() == (kind == "link")
    assert kind != "link" or target.read_text() == "mine"
    assert [(tmp_path / f"x-{number}.html").read_text() for number in (2, 3)] == ["mine, too", "new"]
    with pytest.raises(OutputError, match="exists: choose another name"), creating(path):
        pass


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


def test_a_device_is_written_directly():
    with replacing("/dev/null") as file:
        file.write(b"gone")
        seal(file)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_missing_folders_are_made_below_the_working_directory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    files.make_folder(Path("runs/a"), "--out")
    files.make_folder(tmp_path / "b", "--out")
    for folder, said in (
        (tmp_path / "c" / "d", rf" {tmp_path}/c/d: there is no folder {tmp_path}/c; make it"),
        (Path("/proc/x"), ": the folder /proc/x cannot be made"),
        (Path("/proc"), ": the folder /proc cannot be written to"),
    ):
        with pytest.raises(OutputError, match=f"--out{said}"):
            files.make_folder(folder, "--out")
    assert names(tmp_path) == ["b", "runs"]


def test_a_damaged_file_is_set_aside_under_a_name_that_nothing_has(tmp_path: Path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "a.damaged-1").write_text("mine")
    (tmp_path / "a.damaged-2").symlink_to("nowhere")
    assert files.set_aside(tmp_path / "a") == tmp_path / "a.damaged-3"
    assert (tmp_path / "a.damaged-3").read_text() == "a"
    assert names(tmp_path) == ["a.damaged-1", "a.damaged-2", "a.damaged-3"]


# -- the mark ------------------------------------------------------------------------------------------------------


def a_caption(image: Image.Image | None = None) -> Caption:
    return Caption("a", ["a"], np.ones((1, 2, 2)) / 4, 0.0, [0.0], (0, 0, 20, 20), image=image)


def write_figure(path: Path) -> None:
    """A picture by the library that Matplotlib, too, uses for its format: Pillow, or Matplotlib for vectors."""
    from caption.visualize import plot_caption, save_figure

    suffix = path.suffix[1:]
    if suffix in ("pdf", "svg", "eps", "png", "svgz"):
        caption = a_caption(photo(20, 20, 0))
        save_figure(plot_caption(caption, caption.image), path)
        return
    with replacing(path) as file:
        photo().save(file, {"jpg": "jpeg", "tif": "tiff"}.get(suffix, suffix), **marked(suffix)["pil_kwargs"])
        seal(file)


WRITERS: dict[str, Callable[[Path], None]] = {
    **dict.fromkeys(("png", "jpg", "webp", "tif", "gif", "pdf", "svg", "eps"), write_figure),
    **({"avif": write_figure} if features.check("avif") else {}),
    "html": write_own,
    "npz": lambda path: a_caption().save_attention(path),
    "ckpt": lambda path: save_own({"x": torch.ones(3)}, path),
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_a_file_is_ours_until_any_byte_of_it_changes(suffix: str, tmp_path: Path):
    path = tmp_path / f"x.{suffix}"
    WRITERS[suffix](path)
    assert is_own(path)
    whole = path.read_bytes()
    of_mark = whole.index(b"caption: where") + 40
    for place in (0, 1, len(whole) // 3, len(whole) // 2, of_mark, len(whole) - 1):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert not is_own(path), place
    for changed in (whole + b"\n", whole[:-1], whole[:1000] + b"x" + whole[1000:]):
        path.write_bytes(changed)
        assert not is_own(path)
    path.write_bytes(whole)
    assert is_own(path)
    check_readable(path)


def check_readable(path: Path) -> None:
    """Other programs read it, with the checksums of its parts."""
    if path.suffix in (".png", ".jpg", ".webp", ".tif", ".gif"):
        with Image.open(path) as image:
            image.load()
        Image.open(path).verify()
    elif path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive, np.load(path) as arrays:
            assert archive.testzip() is None
            assert arrays["weights"].shape == (1, 2, 2)
    elif path.suffix == ".ckpt":
        for content in (torch.load(path, weights_only=True), load_tensors(path)):
            assert torch.equal(content["x"], torch.ones(3))


def test_a_file_of_another_origin_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "out.html"
    write_own(path)
    quoted = b"<p>What is this? %b</p>" % path.read_bytes()
    contents = [b"", b"mine", b"PK\3\4 damaged", b"x" * 300_000, f"<p>{MARK}</p>".encode(), quoted]
    write_figure(tmp_path / "x.svgz")  # which has no place for the mark
    for content in (*contents, (tmp_path / "x.svgz").read_bytes()):
        path.write_bytes(content)
        assert not is_own(path)
        with pytest.raises(OutputError, match="it stays"), replacing_own(path) as file:
            file.write(b"lost")
        assert path.read_bytes() == content

    def forbidden(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    write_own(tmp_path / "ours.html")
    monkeypatch.setattr(os, "open", forbidden)
    assert not is_own(tmp_path / "ours.html")
