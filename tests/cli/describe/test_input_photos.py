"""The photos that a command line names."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from helpers.tiny_captioner import photo

from caption.cli.configuration.arguments import verb_parser
from caption.cli.describe import command
from caption.cli.describe.inputs import input_photos
from caption.core.errors import UserError


def test_a_folder_is_its_images_by_name(tmp_path: Path):
    for name in ("b.jpg", "a.PNG", "c.webp", "notes.txt", "Thumbs.db", "._b.jpg", "README", "IMG_2.HEIC"):
        (tmp_path / name).touch()
    photo(20, 20, 0).save(tmp_path / "IMG_1", format="PNG")  # without a suffix
    (tmp_path / "deeper.png").mkdir()
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "d.jpg").touch()
    photos, _, notes = input_photos([str(tmp_path)])
    names = ("IMG_1", "IMG_2.HEIC", "a.PNG", "b.jpg", "c.webp")
    assert photos == [str(tmp_path / name) for name in names]
    left_out = "README, Thumbs.db, below and 2 more (subfolders, or not images)"
    assert notes == [f"'{tmp_path}': left out {left_out}"]


def test_a_name_with_a_dash_in_front_is_told_from_an_option(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    parser = verb_parser("describe", command)
    for name in ("-dash.jpg", "-holiday.jpg", "--html"):
        (tmp_path / name).touch()
    for name in ("-dash.jpg", "-holiday.jpg"):
        with pytest.raises(UserError, match=rf"'\./{name}'"):
            parser.parse_args(["a.jpg", name])
    for words in (["-gone.jpg"], ["a.jpg", "--heatmap", "-new.png"], ["a.jpg", "--model", "-gone.ckpt"]):
        with pytest.raises(UserError, match=rf"; if {words[-1]} is a file, write \./{words[-1]} \("):
            parser.parse_args(words)
    with pytest.raises(UserError, match="length-normalization") as refused:
        parser.parse_args(["a.jpg", "--length-normalization", "-x0.5"])
    assert "is a file" not in str(refused.value)
    assert parser.parse_args(["--html", "a.html", "--", "-dash.jpg"]).images == ["-dash.jpg"]


def test_a_bad_link_condemns_itself_only(tmp_path: Path):
    (tmp_path / "a.jpg").touch()
    (tmp_path / "loop.jpg").symlink_to("loop.jpg")
    (tmp_path / "long.jpg").symlink_to("x" * 300)
    (tmp_path / "dangling.jpg").symlink_to("nothing")
    photos, _, notes = input_photos([str(tmp_path)])
    assert [Path(path).name for path in photos] == ["a.jpg", "dangling.jpg", "long.jpg", "loop.jpg"]
    assert notes == []


def test_files_stay_as_they_are_named_in_order_and_so_do_folders_without_images(tmp_path: Path):
    for name in ("in/x.jpg", "empty/notes.txt"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    inside, empty = str(tmp_path / "in" / "x.jpg"), str(tmp_path / "empty")
    named = ["z.jpg", "missing.xyz", str(tmp_path / "in"), "./a.png", "z.jpg", "a\0b", empty]
    expected = ["z.jpg", "missing.xyz", inside, "./a.png", "z.jpg", "a\0b", empty]
    assert input_photos(named) == (expected, expected, [])
    assert input_photos([empty], recursive=True).photos == [empty]


def test_subfolders_are_read_if_asked_for(tmp_path: Path):
    """Also those behind links, each once."""
    top, disk = tmp_path / "top", tmp_path / "disk"
    names = ("z.jpg", "b/y.png", "a/x.jpg", "a/deep/w.webp", ".hidden/v.jpg", "a/notes.txt")
    for path in (*(top / name for name in names), disk / "u.jpg"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (top / "a" / "loop").symlink_to(top)
    (top / "c").symlink_to(disk)
    photos, _, notes = input_photos([str(top)], recursive=True)
    assert photos == [str(top / name) for name in ("z.jpg", "a/x.jpg", "a/deep/w.webp", "b/y.png", "c/u.jpg")]
    assert notes == []


def test_a_pattern_stands_for_what_it_matches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("in/b.jpg", "in/a.jpg", "in/c.png", "in/deep/d.jpg", "really[1].jpg"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).touch()
    assert input_photos(["in/*.jpg"]).photos == [os.path.join("in", "a.jpg"), os.path.join("in", "b.jpg")]
    assert len(input_photos(["in/**/*.jpg"]).photos) == 3
    assert input_photos(["really[1].jpg", "*.gif"]).photos == ["really[1].jpg", "*.gif"]


def test_standard_input_is_one_photo(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"bytes")))
    photos, (source,), _ = input_photos(["-"])
    assert photos == ["stdin"]
    assert source.read() == b"bytes"
    with pytest.raises(UserError, match="named twice"):
        input_photos(["-", "a.jpg", "-"])
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(UserError, match="closed"):
        input_photos(["-"])
