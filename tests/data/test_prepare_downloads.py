"""Downloads in all forms: complete, truncated, damaged or malicious archives; folders; files."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from caption.data.prepare.downloads import open_download
from caption.errors import DataError

FILES = {"a/one.txt": b"one", "a/b/two.bin": bytes(range(256)) * 40, "three.json": b'{"x": 3}'}


def make(kind: str, folder: Path) -> Path:
    path = folder / f"files.{kind}"
    if kind == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in FILES.items():
                archive.writestr(name, data)
    elif kind == "folder":
        for name, data in FILES.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_bytes(data)
    else:
        with tarfile.open(path, "w:gz" if kind == "tar.gz" else "w") as archive:
            for name, data in FILES.items():
                add(archive, name, data)
    return path


def add(archive: tarfile.TarFile, name: str, data: bytes, kind: bytes = tarfile.REGTYPE) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.type = len(data), kind
    info.linkname = "/etc/hostname" if kind == tarfile.SYMTYPE else ""
    archive.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz", "folder"])
def test_all_kinds_have_the_same_members(kind: str, tmp_path: Path) -> None:
    download = open_download(str(make(kind, tmp_path)))
    assert {member.path: member.size for member in download.members} == {n: len(d) for n, d in FILES.items()}
    assert {member.path: data for member, data in download.read(download.members)} == FILES
    by_name = {member.name: member for member in download.members}
    assert by_name["two.bin"].read() == FILES["a/b/two.bin"]
    assert by_name["one.txt"].text() == "one"
    assert by_name["three.json"].json() == {"x": 3}
    assert str(by_name["one.txt"]) == f"'a/one.txt' of '{download.where}'"
    some = [by_name["three.json"], by_name["one.txt"]]
    assert {member.name for member, _ in download.read(some)} == {"three.json", "one.txt"}


def test_a_file_by_itself(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(b"\xef\xbb\xbf[1]")
    (member,) = open_download(str(tmp_path / "x.json")).members
    assert (member.name, member.json()) == ("x.json", [1])


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("left", [0.02, 0.5, 0.9])
def test_a_truncated_archive_is_an_error(kind: str, left: float, tmp_path: Path) -> None:
    path = make(kind, tmp_path)
    data = path.read_bytes()
    whole = len(data) if kind != "tar" else len(FILES["a/b/two.bin"])  # a tar is padded after its last file
    path.write_bytes(data[: int(whole * left)])
    with pytest.raises(DataError, match=r"is truncated or damaged .*Download it again"):
        list((download := open_download(str(path))).read(download.members))


def test_a_damaged_member_is_named(tmp_path: Path) -> None:
    path = make("zip", tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(FILES["a/b/two.bin"]) + 1000] ^= 1
    path.write_bytes(data)
    download = open_download(str(path))
    with pytest.raises(DataError, match=r"'a/b/two.bin' of '.*files.zip' is truncated or damaged \(Bad CRC"):
        list(download.read(download.members))


@pytest.mark.parametrize("name", ["../up.jpg", "a/../../up.jpg", "/root.jpg", "C:/x.jpg", "..\\up.jpg"])
@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_paths_that_lead_out_are_refused(name: str, kind: str, tmp_path: Path) -> None:
    path = make(kind, tmp_path)
    if kind == "zip":
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, b"x")
    else:
        with tarfile.open(path, "a") as archive:
            add(archive, name, b"x")
    with pytest.raises(DataError, match="which leads out of it: do not use it"):
        open_download(str(path))


def test_links_in_a_tar_are_left_out(tmp_path: Path) -> None:
    path = make("tar", tmp_path)
    with tarfile.open(path, "a") as archive:
        add(archive, "link.txt", b"", tarfile.SYMTYPE)
    assert "link.txt" not in {member.name for member in open_download(str(path)).members}


def test_litter_is_left_out(tmp_path: Path) -> None:
    folder = make("folder", tmp_path)
    for name in (".DS_Store", "__MACOSX/a/._one.txt", "a/Thumbs.db", ".hidden/one.txt"):
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(b"litter")
    assert {member.path for member in open_download(str(folder)).members} == set(FILES)


def test_text_and_json_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_bytes(b"ab\xff")
    (member,) = open_download(str(tmp_path / "x.txt")).members
    with pytest.raises(DataError, match=r"is not UTF-8 text \(byte 2\)"):
        member.text()
    (tmp_path / "x.txt").write_bytes(b"{\n1")
    with pytest.raises(DataError, match=r"is not JSON: .* in line 2"):
        member.json()
    (tmp_path / "x.txt").unlink()
    with pytest.raises(DataError, match=r"x\.txt' cannot be read"):
        member.read()


def test_missing_downloads_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="does not exist"):
        open_download(str(tmp_path / "missing.zip"))
    monkeypatch.setenv("HOME", str(tmp_path))
    os.mkdir(tmp_path / "there")
    assert open_download("~/there").members == []
