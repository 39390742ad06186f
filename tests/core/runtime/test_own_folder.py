"""Folders of our own files: only what is listed and unchanged is replaced or deleted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from caption.core.errors import UserError
from caption.core.runtime import files
from caption.core.runtime.files import LIST, OwnFolder


def fill(path: Path, **contents: str) -> OwnFolder:
    folder = OwnFolder(path, "--out")
    for name, content in contents.items():
        write(folder, f"sub/{name}", content)
    return folder


def write(folder: OwnFolder, name: str, content: str) -> None:
    with folder.write(name) as file:
        file.write(content.encode())


def contents(path: Path) -> dict[str, str]:
    found = [each for each in sorted(path.rglob("*")) if each.is_file() and each.name != LIST]
    return {str(each.relative_to(path)): each.read_text() for each in found}


def test_what_was_written_is_replaced_and_deleted(tmp_path: Path):
    fill(tmp_path, a="1", b="2")
    folder = OwnFolder(tmp_path, "--out")  # as the next command sees it
    assert folder.names() == ["sub/a", "sub/b"]
    write(folder, "sub/a", "new")
    assert contents(tmp_path) == {"sub/a": "new", "sub/b": "2"}
    folder.delete(folder.names())
    assert not (tmp_path / "sub").exists()


def test_other_files_stay(tmp_path: Path):
    folder = fill(tmp_path, a="1", b="2")
    (tmp_path / "sub" / "a").write_text("changed")
    (tmp_path / "sub" / "mine").write_text("mine")
    with pytest.raises(UserError, match=r"holds sub/a, sub/mine, which .* with --out"):
        folder.check(["sub/a", "sub/b", "sub/mine", "sub/new"])
    for name in ("sub/a", "sub/mine"):
        with pytest.raises(UserError, match=name):
            write(folder, name, "lost")
    folder.delete(["sub/a", "sub/b", "sub/mine", "sub/none"])
    assert contents(tmp_path) == {"sub/a": "changed", "sub/mine": "mine"}


@pytest.mark.parametrize("linked", ["file", "folder"])
def test_nothing_is_deleted_or_written_through_a_link(tmp_path: Path, linked: str):
    own, theirs = tmp_path / "own", tmp_path / "theirs"
    own.mkdir()
    folder = fill(own, a="1")
    theirs.mkdir()
    (theirs / "a").write_text("1")  # even where the bytes are the same
    (own / "sub" / "a").unlink()
    if linked == "file":
        (own / "sub" / "a").symlink_to(theirs / "a")
    else:
        (own / "sub").rmdir()
        (own / "sub").symlink_to(theirs)
    folder.delete(["sub/a"])
    with pytest.raises(UserError, match="sub/a"):
        write(folder, "sub/a", "lost")
    assert (theirs / "a").read_text() == "1"


def test_a_list_from_elsewhere_reaches_nothing_outside(tmp_path: Path):
    own, victim = tmp_path / "own", tmp_path / "victim"
    own.mkdir()
    fill(own, a="1")
    victim.write_text("1")
    entry = json.loads((own / LIST).read_text())
    with (own / LIST).open("a") as file:
        for name in ("../victim", str(victim), "sub/../../victim"):
            file.write(json.dumps(entry | {"name": name}) + "\n")
        file.write('[1]\n{"name": 3}\nnonsense\n{"name": "sub/b", "dig')
    folder = OwnFolder(own, "--out")
    assert folder.names() == ["sub/a"]
    write(folder, "sub/c", "3")  # its line does not continue the one that was cut short
    folder = OwnFolder(own, "--out")
    folder.delete(folder.names())
    assert contents(own) == {}
    assert victim.read_text() == "1"


@pytest.mark.parametrize("kind", ["text", "link", "pipe", "folder"])
def test_a_foreign_file_of_the_lists_name_is_refused_before_any_work(tmp_path: Path, kind: str):
    path, mine = tmp_path / "own" / LIST, tmp_path / "mine"
    path.parent.mkdir()
    listed = '{"name": "a", "digest": "0"}\n'
    mine.write_text(listed)
    put = {"text": lambda: path.write_text("mine"), "link": lambda: path.symlink_to(mine)}
    put |= {"pipe": lambda: os.mkfifo(path), "folder": path.mkdir}
    put[kind]()
    with pytest.raises(UserError, match=r"is not the list of files .* with --out"):
        OwnFolder(tmp_path / "own", "--out").check(["a"])
    assert [each.name for each in path.parent.iterdir()] == [LIST]
    assert mine.read_text() == listed
    assert kind != "text" or path.read_text() == "mine"


def test_a_copy_made_of_links_keeps_its_list(tmp_path: Path):
    folder = fill(tmp_path / "own", a="1")
    (tmp_path / "copy").hardlink_to(tmp_path / "own" / LIST)
    before = (tmp_path / "copy").read_bytes()
    write(folder, "b", "2")
    assert (tmp_path / "copy").read_bytes() == before
    assert OwnFolder(tmp_path / "own", "--out").names() == ["sub/a", "b"]


@pytest.mark.parametrize("earlier", [{}, {"sub/a": "1"}])
def test_killed_before_a_file_has_its_place_the_old_one_is_ours_and_the_new_one_not_there(
    tmp_path: Path, earlier: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    folder = fill(tmp_path, **{name.removeprefix("sub/"): content for name, content in earlier.items()})

    def killed(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(files, "_put", killed)
        with pytest.raises(KeyboardInterrupt):
            write(folder, "sub/a", "2")
    assert contents(tmp_path) == earlier
    folder = OwnFolder(tmp_path, "--out")
    folder.delete(folder.names())
    assert contents(tmp_path) == {}
    (tmp_path / "sub").mkdir(exist_ok=True)
    (tmp_path / "sub" / "a").write_text("mine")
    with pytest.raises(UserError, match="holds sub/a, which"):
        OwnFolder(tmp_path, "--out").check(["sub/a"])


def test_what_appears_while_a_file_is_written_stays(tmp_path: Path):
    folder = fill(tmp_path, a="1")
    said = r"sub/a appeared meanwhile.* is in .*sub/a-2"
    with pytest.raises(UserError, match=said), folder.write("sub/a") as file:  # noqa: PT012
        file.write(b"new")
        (tmp_path / "sub" / "a").write_text("mine")
    assert contents(tmp_path) == {"sub/a": "mine", "sub/a-2": "new"}


def test_what_is_empty_was_lost_in_a_power_failure(tmp_path: Path):
    folder = fill(tmp_path, a="1")
    for name in ("a", "b"):
        (tmp_path / "sub" / name).write_text("")
    assert "sub/a" in folder
    assert "sub/b" not in folder
