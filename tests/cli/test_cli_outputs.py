"""Verbs that write one file: it is checked before any other is read, and the user's stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.command_line import Ran

Cli = Callable[..., Ran]
COMMANDS = {
    "export": ("export none --format ckpt --out", ".ckpt"),
    "safetensors": ("export none --format safetensors --out", ".safetensors"),
    "calibrate": ("calibrate none -c none.yaml --out", ".ckpt"),
    "arctic": ("import arctic none.npz --options none.json --vocabulary none.txt --out", ".ckpt"),
    "sgrvinod": ("import sgrvinod none.pth --word-map none.json --out", ".safetensors"),
    "check": ("check none.json --write", ".yaml"),
    "analyse": ("analyse --model a=none --out", ".html"),
}


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("/nowhere/a/x{}", "there is no folder /nowhere; make it, or correct the name"),
        ("mine{}", "mine"),
        ("lost{}", "lost"),
        ("folder", "folder is a folder: name a file"),
        ("x.xyz", "x.xyz: end its name in "),
    ],
)
def test_the_output_is_checked_first(
    cli: Cli, tmp_path: Path, monkeypatch, name: str, target: str, message: str
):
    monkeypatch.chdir(tmp_path)
    command, suffix = COMMANDS[name]
    (tmp_path / f"mine{suffix}").write_text("mine")
    (tmp_path / f"lost{suffix}").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    before = sorted(tmp_path.iterdir())
    ran = cli(*command.split(), target.format(suffix))
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / f"mine{suffix}").read_text() == "mine"


def test_a_report_replaces_no_file_of_the_users_beside_it(cli: Cli, tmp_path: Path):
    (tmp_path / "page.json").write_bytes(b"mine")
    ran = cli("analyse", "--model", "a=none", "--out", tmp_path / "page.html")
    assert (ran.code, ran.out) == (2, "")
    assert "--out would overwrite" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["page.json"]
