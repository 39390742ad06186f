"""Downloads in all forms: complete, truncated or damaged archives; folders; files."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from helpers.downloads import make_folder, make_tar, make_zip

from caption.core.errors import DataError
from caption.data.prepare.downloads import open_download

FILES = {"a/one.txt": b"one", "a/b/two.bin": bytes(range(256)) * 40, "three.json": b'{"x": 3}'}
LITTER = (".DS_Store", "__MACOSX/a/._one.txt", "a/Thumbs.db", ".hidden/one.txt")
KINDS = {"zip": make_zip, "tar": make_tar, "tar.gz": make_tar, "folder": make_folder}


def make(kind: str, folder: Path) -> Path:
    return KINDS[kind](folder / f"files.{kind}", FILES | dict.fromkeys(LITTER, b"litter"))


@pytest.mark.parametrize("kind", KINDS)
def test_all_kinds_have_the_same_members_without_litter(kind: str, tmp_path: Path):
    path = make(kind, tmp_path)
    members = open_download(str(path))
    assert {member.path: member.size for member in members} == {n: len(d) for n, d in FILES.items()}
    for order in (members, members[::-1]):
        assert {member.path: member.read() for member in order} == FILES
    assert f"'a/one.txt' of '{path}'" in map(str, members)
    assert {(member.crc is not None, member.file is not None) for member in members} == {
        (kind == "zip", kind == "folder")
    }


@pytest.mark.parametrize("kind", ["zip", "tar", "tar.gz"])
@pytest.mark.parametrize("left", [0.02, 0.9])
def test_a_truncated_archive_is_an_error(kind: str, left: float, tmp_path: Path):
    path = KINDS[kind](tmp_path / f"files.{kind}", FILES)
    data = path.read_bytes()
    whole = len(data) if kind != "tar" else len(FILES["a/b/two.bin"])  # a tar is padded after its last file
    path.write_bytes(data[: int(whole * left)])
    with pytest.raises(DataError, match=r"cannot be read .*truncated or damaged, download it again"):
        [member.read() for member in open_download(str(path))]


def test_a_damaged_member_is_named(tmp_path: Path):
    path = make("zip", tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(FILES["a/b/two.bin"]) + 1000] ^= 1
    path.write_bytes(data)
    by_name = {member.name: member for member in open_download(str(path))}
    assert by_name["one.txt"].read() == b"one"
    with pytest.raises(DataError, match=r"'a/b/two.bin' of '.*files.zip' cannot be read \(Bad CRC"):
        by_name["two.bin"].read()


def test_no_path_leads_out_and_links_are_left_out(tmp_path: Path):
    """A member's name, under which it is written, is the last part of its path."""
    paths = ["../up.jpg", "a/../../up.jpg", "/up.jpg", "C:/up.jpg", "..\\up.jpg", "a\\up.jpg"]
    for kind in ("zip", "tar"):
        path = KINDS[kind](tmp_path / f"out.{kind}", dict.fromkeys(paths, b"x"))
        assert {member.name for member in open_download(str(path))} == {"up.jpg"}
    link = tarfile.TarInfo("link.txt")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
    with tarfile.open(path, "a") as archive:
        archive.addfile(link)
    assert {member.name for member in open_download(str(path))} == {"up.jpg"}


def test_a_file_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "x.json").write_bytes(b"\xef\xbb\xbf[1]")
    (member,) = open_download("~/x.json")
    assert (member.name, member.text()) == ("x.json", "[1]")
    (tmp_path / "x.json").unlink()
    with pytest.raises(DataError, match=r"x\.json' does not exist"):
        member.read()
