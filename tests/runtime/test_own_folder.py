"""Folders of our own files: only what is listed and unchanged is replaced or deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from caption.errors import UserError
from caption.runtime import files
from caption.runtime.files import LIST, OwnFolder


def fill(path: Path, **contents: str) -> OwnFolder:
    folder = OwnFolder(path, "--out")
    for name, content in contents.items():
        with folder.write(f"sub/{name}") as file:
            file.write(content.encode())
    return folder


def contents(path: Path) -> dict[str, str]:
    return {
        str(each.relative_to(path)): each.read_text()
        for each in sorted(path.rglob("*"))
        if each.is_file() and each.name != LIST
    }


def test_what_was_written_is_replaced_and_deleted(tmp_path: Path):
    fill(tmp_path, a="1", b="2")
    folder = OwnFolder(tmp_path, "--out")  # as the next command sees it
    assert folder.names() == ["sub/a", "sub/b"]
    with folder.write("sub/a") as file:
        file.write(b"new")
    assert contents(tmp_path) == {"sub/a": "new", "sub/b": "2"}
    assert folder.delete() == []
    assert contents(tmp_path) == {}
    assert not (tmp_path / "sub").exists()


def test_other_files_stay(tmp_path: Path):
    folder = fill(tmp_path, a="1", b="2")
    (tmp_path / "sub" / "a").write_text("changed")
    (tmp_path / "sub" / "mine").write_text("mine")
    with pytest.raises(UserError, match=r"holds sub/a, sub/mine, which .* with --out"):
        folder.check(["sub/a", "sub/b", "sub/mine", "sub/new"])
    for name in ("sub/a", "sub/mine"):
        with pytest.raises(UserError, match=name), folder.write(name) as file:
            file.write(b"lost")
    assert folder.delete(["sub/a", "sub/b", "sub/mine", "sub/none"]) == ["sub/a", "sub/mine"]
    assert contents(tmp_path) == {"sub/a": "changed", "sub/mine": "mine"}


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_nothing_is_deleted_or_written_through_a_link(tmp_path: Path, linked: str):
    (tmp_path / "own").mkdir()
    folder = fill(tmp_path / "own", a="1")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "a").write_text("1")  # even where the bytes are the same
    (tmp_path / "own" / "sub" / "a").unlink()
    if linked == "file":
        (tmp_path / "own" / "sub" / "a").symlink_to(tmp_path / "theirs" / "a")
    else:
        (tmp_path / "own" / "sub").rmdir()
        (tmp_path / "own" / "sub").symlink_to(tmp_path / "theirs")
    assert folder.delete() == ["sub/a"]
    with pytest.raises(UserError, match="sub/a"), folder.write("sub/a") as file:
        file.write(b"lost")
    assert (tmp_path / "theirs" / "a").read_text() == "1"


def test_a_list_from_elsewhere_reaches_nothing_outside(tmp_path: Path):
    (tmp_path / "own").mkdir()
    fill(tmp_path / "own", a="1")
    (tmp_path / "victim").write_text("1")
    path = tmp_path / "own" / LIST
    entry = json.loads(path.read_text())
    for name in ("../victim", str(tmp_path / "victim"), "sub/../../victim"):
        with path.open("a") as file:
            file.write(json.dumps(entry | {"name": name}) + "\n")
    with path.open("a") as file:
        file.write('[1]\n{"name": 3}\nnonsense\n{"name": "sub/b", "dig')
    folder = OwnFolder(tmp_path / "own", "--out")
    assert folder.names() == ["sub/a"]
    with folder.write("sub/c") as file:  # its line does not continue the one that was cut short
        file.write(b"3")
    assert OwnFolder(tmp_path / "own", "--out").delete() == []
    assert contents(tmp_path / "own") == {}
    assert (tmp_path / "victim").read_text() == "1"


@pytest.mark.parametrize("kind", ["text", "link", "pipe", "folder"])
def test_a_foreign_file_of_the_lists_name_is_refused_before_any_work(tmp_path: Path, kind: str):
    path, mine = tmp_path / "own" / LIST, tmp_path / "mine"
    path.parent.mkdir()
    mine.write_text("mine")
    if kind == "text":
        path.write_text("mine")
    elif kind == "link":
        path.symlink_to(mine)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(UserError, match=r"is not the list of files .* with --out"):
        OwnFolder(tmp_path / "own", "--out").check(["a"])
    assert [each.name for each in path.parent.iterdir()] == [LIST]
    assert mine.read_text() == "mine"
    if kind == "text":
        assert path.read_text() == "mine"


def test_a_copy_made_of_links_keeps_its_list(tmp_path: Path):
    folder = fill(tmp_path / "own", a="1")
    (tmp_path / "copy").hardlink_to(tmp_path / "own" / LIST)
    before = (tmp_path / "copy").read_bytes()
    with folder.write("b") as file:
        file.write(b"2")
    assert (tmp_path / "copy").read_bytes() == before
    assert OwnFolder(tmp_path / "own", "--out").names() == ["sub/a", "b"]


def test_an_interrupted_file_is_neither_there_nor_in_the_way(tmp_path: Path):
    folder = OwnFolder(tmp_path, "--out")
    with pytest.raises(KeyboardInterrupt), folder.write("a") as file:  # noqa: PT012
        file.write(b"1")
        raise KeyboardInterrupt
    assert contents(tmp_path) == {}
    (tmp_path / "a").write_text("mine")
    with pytest.raises(UserError, match="holds a, which"):
        OwnFolder(tmp_path, "--out").check(["a"])


def test_killed_before_a_file_has_its_place_the_old_one_is_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = fill(tmp_path, a="1")

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files, "_put", killed)
        with pytest.raises(KeyboardInterrupt), folder.write("sub/a") as file:
            file.write(b"2")
    assert contents(tmp_path) == {"sub/a": "1"}
    assert OwnFolder(tmp_path, "--out").delete() == []
    assert contents(tmp_path) == {}


def test_what_appears_while_a_file_is_written_stays(tmp_path: Path):
    folder = fill(tmp_path, a="1")
    said = r"sub/a appeared meanwhile.* is in .*sub/a-2"
    with pytest.raises(UserError, match=said), folder.write("sub/a") as file:  # noqa: PT012
        file.write(b"new")
        (tmp_path / "sub" / "a").write_text("mine")
    assert contents(tmp_path) == {"sub/a": "mine", "sub/a-2": "new"}


def test_what_is_empty_was_lost_in_a_power_failure(tmp_path: Path):
    folder = fill(tmp_path, a="1")
    (tmp_path / "sub" / "a").write_text("")
    assert "sub/a" in folder
    (tmp_path / "sub" / "b").write_text("")
    assert "sub/b" not in folder
