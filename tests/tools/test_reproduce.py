"""The tool that reproduces results: what is done is not repeated, and what was stopped is not taken for done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Trained

from tools.reproduce import flickr8k
from tools.reproduce import runs as tool
from tools.reproduce.__main__ import main


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
        (tmp_path / "logs" / "version_1" / "test_captions.json").write_text("[]")
        return 0

    monkeypatch.setattr(tool, "caption", tested)
    assert tool.test(tmp_path, tmp_path / "test.json", []) == {"scores": {"CIDEr": 1}}
    assert json.loads((tmp_path / "test.json").read_text()) == {"scores": {"CIDEr": 1}}
    assert (tmp_path / "test_captions.json").exists()


def test_flickr8k_chooses_the_beam_on_dev_and_tests_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Beam 7 is best on dev on the mean of the seeds, though beam 3 is for one of them, and both would be on test."""
    dev = {
        (0, 3): 0.3,
        (0, 5): 0.1,
        (0, 7): 0.2,
        (0, 10): 0.1,
        (1, 3): 0.0,
        (1, 5): 0.1,
        (1, 7): 0.2,
        (1, 10): 0.1,
    }
    tests: list[str] = []

    def fit(folder: Path, arguments: list[str]) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        fitted.append((folder.name, [each for each in arguments if "warm_start" in each]))
        return folder / "best.ckpt"

    def tested(folder: Path, file: Path, arguments: list[str]) -> dict[str, Any]:
        beam = int(next(each for each in arguments if "beam_size" in each).partition("=")[2])
        splits = [each for each in arguments if "splits" in each][-1]
        on_dev = json.loads(splits.partition("=")[2])["test"].endswith("devImages.txt")
        assert on_dev == file.name.startswith("dev")
        tests.append(file.stem)
        bleu = dev[int(folder.name[-1]), beam] if on_dev else 0.5 + beam / 100
        return {"scores": {"BLEU-4": bleu}}

    fitted: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(flickr8k, "fit", fit)
    monkeypatch.setattr(flickr8k, "test", tested)
    monkeypatch.setattr(flickr8k, "run", lambda *arguments: None)
    monkeypatch.setattr(flickr8k, "unpenalised", lambda data, captions: 0.6)
    document = tmp_path / "results.md"
    document.write_text("<!-- section flickr8k begins -->\n\n<!-- section flickr8k ends -->\n")
    out = tmp_path / "runs"
    arguments = ["--models", "hard", "--seeds", "0", "1", "--out", str(out), "--document", str(document)]
    assert main(["flickr8k", "--data", str(tmp_path), "--weights", "w.pth", *arguments]) == 0
    assert [name for name, _ in fitted] == ["soft_0", "hard_0", "soft_1", "hard_1"]
    assert fitted[1][1] == [f"--model.warm_start={out / 'soft_0' / 'best.ckpt'}"]
    assert [each for each in tests if each.startswith("test")] == ["test_beam7", "test_beam7"]
    assert "| hard, from soft, decoded by expectation, beam 7 |" in document.read_text()
    assert "| 0.570 ± 0.000 | 0.600 ± 0.000 |" in document.read_text()


def test_bleu_without_brevity_penalty_is_that_of_the_captions_of_the_file(tmp_path: Path):
    lines = [
        f"{image}.jpg#{k}\t{text} ."
        for image, text in (("a", "a dog runs on the wet grass"), ("b", "two men sit"))
        for k in range(5)
    ]
    (tmp_path / "Flickr8k.token.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "captions.json").write_text(
        json.dumps([{"image_id": "a.jpg", "caption": "a dog runs on the"}])
    )
    assert flickr8k.unpenalised(tmp_path, tmp_path / "captions.json") == pytest.approx(1)
