"""The tool that reproduces results: what is done is not repeated, and what was stopped is not taken for done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from command_line import Trained

from tools import reproduce as tool


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that ran; none does anything, and each exits with the next of `codes`."""
    commands: list[list[str]] = []
    monkeypatch.setattr(tool, "caption", lambda arguments: commands.append(arguments) or 0)
    return commands


def test_a_stopped_training_is_not_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tool, "caption", lambda arguments: 143)
    with pytest.raises(SystemExit) as left:
        tool.fit(tmp_path, ["-c", "x.yaml"])
    assert left.value.code == 143
    assert not (tmp_path / "done").exists()


def test_a_training_goes_on_until_it_is_done_and_is_not_repeated(
    tmp_path: Path, trained: Trained, ran: list[list[str]]
):
    contents = torch.load(trained.folder / "last.ckpt", weights_only=True)
    torch.save(contents, tmp_path / "last.ckpt")
    for _ in range(2):
        assert tool.fit(tmp_path, ["-c", "x.yaml"]) == tmp_path / "best.ckpt"
    assert len(ran) == 1
    assert ran[0][ran[0].index("--ckpt_path") + 1] == "auto"
    assert (tmp_path / "done").read_text().endswith("seconds of training\n")


def test_a_test_that_was_stopped_is_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "logs" / "version_0").mkdir(parents=True)
    (tmp_path / "logs" / "version_0" / "test_scores.json").write_text('{"scores"')  # cut by a kill
    monkeypatch.setattr(tool, "caption", lambda arguments: 143)
    with pytest.raises(SystemExit):
        tool.test(tmp_path, tmp_path / "test.json", [])
    assert not (tmp_path / "test.json").exists()

    def tested(arguments: list[str]) -> int:
        (tmp_path / "logs" / "version_1").mkdir()
        (tmp_path / "logs" / "version_1" / "test_scores.json").write_text('{"scores": {"CIDEr": 1}}')
        return 0

    monkeypatch.setattr(tool, "caption", tested)
    assert tool.test(tmp_path, tmp_path / "test.json", []) == {"scores": {"CIDEr": 1}}
    assert json.loads((tmp_path / "test.json").read_text()) == {"scores": {"CIDEr": 1}}
