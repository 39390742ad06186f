"""Writing the layout: complete or not at all, without overwriting, and without repeated work."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from helpers.downloads import make_folder, make_zip, photo

from caption.core.errors import DataError
from caption.core.runtime import files
from caption.data.prepare.downloads import open_download
from caption.data.prepare.layout import Plan, lay_out

PHOTOS = {f"{number}.jpg": photo(number) for number in range(5)}


def planned(where: Path) -> Plan:
    members = {f"images/{member.name}": member for member in open_download(str(where))}
    return Plan(members, {"list.txt": b"0.jpg\n"})


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return make_zip(tmp_path / "photos.zip", {f"in/{name}": data for name, data in PHOTOS.items()})


def written(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "images").iterdir()}


def test_files_of_a_folder_take_no_room_twice_or_are_copied_where_links_are_impossible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refused(*paths: object, **options: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    folder = make_folder(tmp_path / "photos", PHOTOS)
    assert lay_out(planned(folder), tmp_path / "linked") == []
    assert os.path.samefile(folder / "1.jpg", tmp_path / "linked" / "images" / "1.jpg")
    monkeypatch.setattr(os, "link", refused)
    assert lay_out(planned(folder), tmp_path / "copied") == []
    assert written(tmp_path / "linked") == written(tmp_path / "copied") == PHOTOS


def test_other_bytes_of_the_same_size_are_named_and_stay(archive: Path, tmp_path: Path):
    out = tmp_path / "out"
    lay_out(planned(archive), out)
    spoiled = bytearray(PHOTOS["3.jpg"])
    spoiled[-30] ^= 1
    (out / "images" / "3.jpg").write_bytes(spoiled)
    (out / "images" / "4.jpg").write_bytes(bytes(len(PHOTOS["4.jpg"])))
    failed = sorted(lay_out(planned(archive), out))
    assert len(failed) == 2
    assert "3.jpg': it differs from the download. Delete it" in failed[0]
    assert "4.jpg': its header cannot be decoded" in failed[1]
    assert (out / "images" / "3.jpg").read_bytes() == spoiled
    (out / "images" / "3.jpg").unlink()
    (out / "images" / "4.jpg").unlink()
    assert lay_out(planned(archive), out) == []
    assert written(out) == PHOTOS


def test_stopped_anywhere_it_goes_on(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    out = tmp_path / "out"
    put = files._put
    left = 3  # the list and two photos

    def interrupted(*arguments: Any) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        put(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            lay_out(planned(archive), out)
    assert written(out) == {name: PHOTOS[name] for name in ("0.jpg", "1.jpg")}
    assert lay_out(planned(archive), out) == []
    assert written(out) == PHOTOS


def test_a_disk_without_room(archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1, 1, 100))
    with pytest.raises(DataError, match=r"the images take .*, but the disk of .* 100 bytes left"):
        lay_out(planned(archive), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
@pytest.mark.parametrize("name", ["images/2.jpg", "list.txt"])
def test_what_has_the_name_of_a_file_stays(archive: Path, tmp_path: Path, name: str, kind: str):
    out, theirs = tmp_path / "out", tmp_path / "theirs"
    (out / "images").mkdir(parents=True)
    theirs.write_bytes(b"mine")
    if kind == "pipe":
        os.mkfifo(out / name)
    elif kind == "link":
        (out / name).symlink_to(theirs)
    else:
        shutil.copy(theirs, out / name)
    with pytest.raises(DataError, match="Move it away, or choose another --out"):
        lay_out(planned(archive), out)
    assert {path for path in out.rglob("*") if not path.is_dir()} == {out / name}
    assert theirs.read_bytes() == b"mine"
    assert kind == "pipe" or (out / name).read_bytes() == b"mine"
