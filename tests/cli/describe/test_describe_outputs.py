"""Outputs of `caption describe`: what cannot be written is said before any work, and files of the user stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.command_line import Ran
from helpers.tiny_captioner import photo

Cli = Callable[..., Ran]


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    photo(60, 40, 0).save(tmp_path / "x.png")
    return tmp_path / "x.png"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    ("option", "target", "message"),
    [
        ("--html", "out.png", "--html out.png: end its name in .html or .htm"),
        ("--heatmap", "p.xyz", "--heatmap p.xyz: end its name in .png"),
        ("--contact-sheet", "sheet", "--contact-sheet sheet: end its name in .png"),
        ("--attention", "a.txt", "--attention a.txt: end its name in .npz"),
        ("--html", "/proc/x.html", "the folder /proc cannot be written to"),
        ("--html", "/nowhere/a/x.html", "there is no folder /nowhere; make it, or correct the name"),
        ("--html", f"{'x' * 300}.html", "cannot be the name of a file: File name too long"),
        ("--html", "x\0.html", "cannot be the name of a file: it has a null character"),
        ("--html", "folder", "--html folder is a folder: name a file"),
        ("--heatmap", "taken", "--heatmap would overwrite taken/x.png"),
        ("--html", "lost.html", "--html would overwrite lost.html"),
        ("--html", "mine.html", "--html would overwrite mine.html"),
        ("--html", "mine.html/out.html", "--html: the folder"),
        ("--heatmap", "x.png", "would overwrite the input"),
        ("--heatmap", ".", "would overwrite the input"),
    ],
)
def test_no_output_is_refused_after_the_work(
    cli: Cli, picture, tmp_path, monkeypatch, option: str, target: str, message: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken" / "x.png").mkdir(parents=True)
    (tmp_path / "folder").mkdir()
    (tmp_path / "lost.html").symlink_to("nowhere")
    (tmp_path / "mine.html").write_text("mine")
    before, pixels = sorted(tmp_path.rglob("*")), picture.read_bytes()
    ran = cli("describe", picture.name, "--model", "no such model", option, target)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert sorted(tmp_path.rglob("*")) == before
    assert ((tmp_path / "mine.html").read_text(), picture.read_bytes()) == ("mine", pixels)


def test_one_output_is_not_the_folder_of_another(cli: Cli, picture, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ran = cli(
        "describe", picture.name, "--model", "none", "--contact-sheet", "a.png", "--html", "A.png/x.html"
    )
    assert (ran.code, ran.out) == (2, "")
    assert "--html would lie in A.png, the file of --contact-sheet" in ran.err
    assert contents(tmp_path).keys() == {"x.png"}
