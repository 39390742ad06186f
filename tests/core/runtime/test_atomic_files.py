"""Files are there whole or not at all, and only files of this package are replaced."""

from __future__ import annotations

import json
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
from helpers.tiny_captioner import photo
from matplotlib.figure import Figure
from PIL import features

from caption.core.errors import UserError
from caption.core.runtime import atomic_files
from caption.core.runtime.atomic_files import (
    MANIFEST,
    MARK,
    OutputError,
    OwnFolder,
    creating,
    is_own,
    replacing,
    replacing_own,
)
from caption.core.runtime.outputs import marked
from caption.results.caption import Caption
from caption.training.resuming import CheckpointFile
from caption.visualize import save_html
from caption.visualize.html_document import document

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
    target.write_text(MARK)
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
def test_what_appears_meanwhile_stays(tmp_path: Path, opened: Opened, kind: str):
    path, target = tmp_path / "x.html", tmp_path / "target"
    if kind == "link":
        target.write_text("mine")
    said = r"x\.html exists, and this package did not write it, so nothing was written"
    with pytest.raises(OutputError, match=said), opened(path) as file:  # noqa: PT012
        file.write(b"new")
        if kind == "file":
            path.write_text("mine")
        else:
            path.symlink_to(target)
    assert path.read_text() == "mine" if kind == "file" else path.is_symlink()
    assert target.exists() == (kind == "link")
    assert kind != "link" or target.read_text() == "mine"
    assert names(tmp_path) == ["target", "x.html"][kind != "link" :]
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
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_missing_folders_are_made_below_the_working_directory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    atomic_files.make_folder(Path("runs/a"), "--out")
    atomic_files.make_folder(tmp_path / "b", "--out")
    for folder, said in (
        (tmp_path / "c" / "d", rf" {tmp_path}/c/d: there is no folder {tmp_path}/c; make it"),
        (Path("/proc/x"), ": the folder /proc/x cannot be made"),
        (Path("/proc"), ": the folder /proc cannot be written to"),
    ):
        with pytest.raises(OutputError, match=f"--out{said}"):
            atomic_files.make_folder(folder, "--out")
    assert names(tmp_path) == ["b", "runs"]


def test_a_damaged_file_is_set_aside_under_a_name_that_nothing_has(tmp_path: Path):
    (tmp_path / "a").write_text("a")
    (tmp_path / "a.damaged-1").write_text("mine")
    (tmp_path / "a.damaged-2").symlink_to("nowhere")
    assert atomic_files.set_aside(tmp_path / "a") == tmp_path / "a.damaged-3"
    assert (tmp_path / "a.damaged-3").read_text() == "a"
    assert names(tmp_path) == ["a.damaged-1", "a.damaged-2", "a.damaged-3"]


# -- the mark ------------------------------------------------------------------------------------------------------


def write_figure(path: Path) -> None:
    """A picture by the library that Matplotlib, too, uses for its format: Pillow, or Matplotlib for vectors."""
    from caption.visualize import save_figure

    suffix = path.suffix[1:]
    if suffix in ("pdf", "svg", "eps", "png", "svgz"):
        save_figure(Figure(), path)
    else:
        name = {"jpg": "jpeg", "tif": "tiff"}.get(suffix, suffix)
        photo().save(path, name, **marked(suffix)["pil_kwargs"])


def write_attention(path: Path) -> None:
    Caption("a", ["a"], np.ones((1, 2, 2)) / 4, 0.0, [0.0], (0, 0, 20, 20)).save_attention(path)
    with zipfile.ZipFile(path) as archive, np.load(path) as arrays:
        assert archive.testzip() is None
        assert arrays["weights"].shape == (1, 2, 2)


def write_checkpoint(path: Path) -> None:
    many = {str(number): torch.zeros(9) for number in range(3000)}
    CheckpointFile().save_checkpoint({"state_dict": many, "captioner": {}, "x": torch.ones(3)}, path)
    assert torch.equal(torch.load(path, weights_only=True)["x"], torch.ones(3))


WRITERS: dict[str, Callable[[Path], object]] = {
    **dict.fromkeys(("png", "jpg", "webp", "tif", "gif", "pdf", "svg", "eps"), write_figure),
    **({"avif": write_figure} if features.check("avif") else {}),
    "html": lambda path: save_html(document("a page", "<p>" * 100_000, ""), path),
    "npz": write_attention,
    "ckpt": write_checkpoint,
}


@pytest.mark.parametrize("suffix", WRITERS)
def test_our_files_bear_the_mark_and_are_replaced_edited_or_not(suffix: str, tmp_path: Path):
    path = tmp_path / f"x.{suffix}"
    WRITERS[suffix](path)
    assert is_own(path)
    path.write_bytes(path.read_bytes().replace(b"\0", b"\1") + b" edited")
    with replacing_own(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"
    assert not is_own(path)


def test_a_file_without_the_mark_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "out.html"
    write_figure(tmp_path / "x.svgz")  # which has no place for the mark
    for content in (b"", b"mine", b"PK\3\4 damaged", b"x" * 300_000, (tmp_path / "x.svgz").read_bytes()):
        path.write_bytes(content)
        with pytest.raises(OutputError, match="nothing was written"), replacing_own(path) as file:
            file.write(b"lost")
        assert path.read_bytes() == content

    def forbidden(*args: object) -> None:
        raise PermissionError(13, "Permission denied")

    path.write_text(MARK)
    assert is_own(path)
    monkeypatch.setattr(os, "open", forbidden)
    assert not is_own(path)


# -- folders that this package fills -------------------------------------------------------------------------------


def fill(path: Path, **contents: str) -> OwnFolder:
    folder = OwnFolder(path, "--out")
    for name, content in contents.items():
        write(folder, f"sub/{name}", content)
    return folder


def write(folder: OwnFolder, name: str, content: str) -> None:
    with folder.write(name) as file:
        file.write(content.encode())


def contents(path: Path) -> dict[str, str]:
    found = [each for each in sorted(path.rglob("*")) if each.is_file() and each.name != MANIFEST]
    return {str(each.relative_to(path)): each.read_text() for each in found}


def test_what_the_manifest_names_is_replaced_and_deleted(tmp_path: Path):
    fill(tmp_path, a="1", b="2")
    (tmp_path / "sub" / "b").write_text("edited")
    folder = OwnFolder(tmp_path, "--out")  # as the next command sees it
    assert folder.names == {"sub/a", "sub/b"}
    write(folder, "sub/b", "new")
    assert contents(tmp_path) == {"sub/a": "1", "sub/b": "new"}
    folder.delete(["sub/a", "sub/b", "sub/none"])
    assert not (tmp_path / "sub").exists()
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a").write_text("mine")  # a deleted file's name is anybody's
    OwnFolder(tmp_path, "--out").delete(["sub/a"])
    assert contents(tmp_path) == {"sub/a": "mine"}


def test_other_files_stay(tmp_path: Path):
    folder = fill(tmp_path, a="1")
    (tmp_path / "sub" / "mine").write_text("mine")
    said = r"holds sub/mine, which this package did not write there: move it away, .* with --out"
    for refused in (folder.check, folder.claim):
        with pytest.raises(UserError, match=said):
            refused(["sub/a", "sub/mine", "sub/new"])
    with pytest.raises(UserError, match=said):
        write(folder, "sub/mine", "lost")
    folder.delete(["sub/a", "sub/mine"])
    assert contents(tmp_path) == {"sub/mine": "mine"}


def test_a_claimed_name_is_ours_before_the_file_is_there(tmp_path: Path):
    """So that a killed command goes on."""
    OwnFolder(tmp_path, "--out").claim(["a"])
    (tmp_path / "a").write_text("by the killed command")
    write(OwnFolder(tmp_path, "--out"), "a", "new")
    assert contents(tmp_path) == {"a": "new"}


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_nothing_is_deleted_or_written_through_a_link(tmp_path: Path, linked: str):
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    own.mkdir()
    folder = fill(own, a="1")
    theirs.mkdir()
    (theirs / "a").write_text("mine")
    (own / "sub" / "a").unlink()
    if linked == "file":
        (own / "sub" / "a").symlink_to(theirs / "a")
    else:
        (own / "sub").rmdir()
        (own / "sub").symlink_to(theirs)
    folder.delete(["sub/a"])
    with pytest.raises(UserError, match="sub/a"):
        write(folder, "sub/a", "lost")
    assert (theirs / "a").read_text() == "mine"


def test_a_manifest_from_elsewhere_reaches_nothing_outside(tmp_path: Path):
    own, victim = tmp_path / "own", tmp_path / "victim"
    own.mkdir()
    victim.write_text("mine")
    listed = ["a", "../victim", str(victim), "sub/../../victim", 3, None, "x\0"]
    (own / MANIFEST).write_text(json.dumps({"written_by": MARK, "files": listed}))
    folder = OwnFolder(own, "--out")
    folder.delete([*map(str, listed)])
    write(folder, "a", "1")
    assert contents(own) == {"a": "1"}
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("kind", ["text", "marked text", "link", "pipe", "folder"])
def test_a_foreign_file_of_the_manifests_name_is_refused_before_any_work(tmp_path: Path, kind: str):
    path, mine = tmp_path / "own" / MANIFEST, tmp_path / "mine"
    path.parent.mkdir()
    mine.write_text(f'{{"written_by": "{MARK}", "files": ["a"]}}')
    put = {"text": lambda: path.write_text("mine"), "marked text": lambda: path.write_text(MARK)}
    put |= {"link": lambda: path.symlink_to(mine), "pipe": lambda: os.mkfifo(path), "folder": path.mkdir}
    put[kind]()
    (path.parent / "a").write_text("mine")
    with pytest.raises(UserError, match=r"is not the manifest .* with --out"):
        OwnFolder(tmp_path / "own", "--out").check(["a"])
    assert names(path.parent) == [MANIFEST, "a"]
    assert (path.parent / "a").read_text() == "mine"


def test_a_copy_made_of_links_keeps_its_manifest(tmp_path: Path):
    folder = fill(tmp_path / "own", a="1")
    (tmp_path / "copy").hardlink_to(tmp_path / "own" / MANIFEST)
    before = (tmp_path / "copy").read_bytes()
    write(folder, "b", "2")
    assert (tmp_path / "copy").read_bytes() == before
