"""Outputs are checked before anything is read, and files of the user's stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.command_line import Cli, check_refused
from helpers.tiny_captioner import photo

COMMANDS = {
    "export": ("export none --format ckpt --out", ".ckpt"),
    "safetensors": ("export none --format safetensors --out", ".safetensors"),
    "arctic": ("import arctic none.npz --options none.json --vocabulary none.txt --out", ".ckpt"),
    "sgrvinod": ("import sgrvinod none.pth --word-map none.json --out", ".safetensors"),
    "check": ("check none.json --write", ".yaml"),
    "analyse": ("analyse --model a=none --out", ".html"),
    "describe": ("describe x.png --model none --html", ".html"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_output_is_checked_first(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    """What may stand there is tested in tests/project/test_outputs_matrix.py."""
    monkeypatch.chdir(tmp_path)
    command, suffix = COMMANDS[name]
    mine = tmp_path / f"mine{suffix}"
    mine.write_text("mine")
    photo(60, 40, 0).save("x.png")
    before = sorted(tmp_path.iterdir())
    for target, message in ((mine.name, mine.name), ("x.xyz", "x.xyz: end its name in ")):
        check_refused(cli(*command.split(), target), message)
    assert sorted(tmp_path.iterdir()) == before
    assert mine.read_text() == "mine"


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("--heatmap p.xyz", "--heatmap p.xyz: end its name in .png"),
        ("--html /proc/x.html", "the folder /proc cannot be written to"),
        (f"--html {'x' * 300}.html", "cannot be the name of a file: File name too long"),
        ("--html x\0.html", "cannot be the name of a file: it has a null character"),
        ("--heatmap taken", "--heatmap would overwrite taken/x.png"),
        ("--html mine.html/out.html", "--html: the folder"),
        ("--heatmap x.png", "would overwrite the input"),
        ("--heatmap .", "would overwrite the input"),
    ],
)
def test_outputs_of_describe_are_checked_first(cli: Cli, tmp_path, monkeypatch, output: str, message: str):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken" / "x.png").mkdir(parents=True)
    (tmp_path / "mine.html").write_text("mine")
    photo(60, 40, 0).save("x.png")
    before, pixels = sorted(tmp_path.rglob("*")), Path("x.png").read_bytes()
    check_refused(cli("describe", "x.png", "--model", "no such model", *output.split()), message)
    assert sorted(tmp_path.rglob("*")) == before
    assert (Path("mine.html").read_text(), Path("x.png").read_bytes()) == ("mine", pixels)
