"""The tool that measures the doubly stochastic term."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import tiny_captioner
from PIL import Image

from tools.reproduce import coverage
from tools.reproduce.__main__ import main

SCORES = {"BLEU-4": 0.5, "attention_evenness": 0.9, "attention_entropy_max": 4.16}


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The arguments of each training, by the folder's name."""
    fitted: dict[str, list[str]] = {}
    monkeypatch.setattr(coverage, "fit", lambda folder, arguments: fitted.update({folder.name: arguments}))
    monkeypatch.setattr(coverage, "trained_seconds", lambda folder: 600)
    monkeypatch.setattr(coverage, "test", lambda folder, file, arguments: {"scores": dict(SCORES)})
    marks = (
        "<!-- section doubly_stochastic_shapes begins -->\n<!-- section doubly_stochastic_shapes ends -->\n"
    )
    (tmp_path / "page.md").write_text(marks + marks.replace("shapes", "flickr8k"))
    return fitted


def run(tmp_path: Path, *arguments: str) -> str:
    document = tmp_path / "page.md"
    assert main(["coverage", "--out", str(tmp_path), "--document", str(document), *arguments]) == 0
    return document.read_text()


def test_three_weights_differ_in_their_overlay_alone(tmp_path: Path, fitted: dict[str, list[str]]):
    page = run(tmp_path, "--seeds", "0", "1")
    assert list(fitted) == [
        f"{name}_{seed}"
        for seed in (0, 1)
        for name in ("soft", "doubly_stochastic_tenth", "doubly_stochastic")
    ]
    soft, tenth = fitted["soft_1"], fitted["doubly_stochastic_tenth_1"]
    added = [argument for argument in tenth if argument not in soft]
    assert [Path(argument).parts[-2:] for argument in added] == [("training", "doubly_stochastic_tenth.yaml")]
    assert "| λ | BLEU-4 | evenness | minutes |" in page
    assert "| 0.1 | 0.500 ± 0.000 | 0.900 ± 0.000 | 10 ± 0 |" in page
    assert "over 2 seeds. log L = 4.16 nats" in page


def test_photos_need_captions(tmp_path: Path, fitted: dict[str, list[str]]):
    with pytest.raises(SystemExit, match="--photos needs --data"):
        run(tmp_path, "--photos", str(tmp_path))
    assert fitted == {}


def test_photos_have_stored_regions_and_boxes(
    tmp_path: Path, fitted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
):
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr(coverage, "run", lambda *arguments: made.append(arguments))
    monkeypatch.setattr(coverage.checkpoint, "load", lambda best: tiny_captioner.captioner())
    data, photos = tmp_path / "data", tmp_path / "photos"
    folders: dict[str, Path] = {"photo_boxes.json": photos, "photo_boxes_unseen.json": data / "images"}
    lines = []
    for number, (file, folder) in enumerate(folders.items()):
        folder.mkdir(parents=True)
        Image.new("RGB", (64, 48)).save(folder / f"{number}.jpg")
        lines.append(f"{number}.jpg#0\ta dog .\n")
        everything: dict[str, Any] = {"kind": "dog", "names": ["dog"], "box": [0, 0, 64, 48]}
        boxes = {f"{number}.jpg": {"size": [64, 48], "objects": [everything]}}
        (tmp_path / file).write_text(json.dumps(boxes))
    (data / "Flickr8k.token.txt").write_text("".join(lines))
    page = run(tmp_path, "--data", str(data), "--photos", str(photos), "--seeds", "0")
    assert made[0][0] == "features"
    assert str(tmp_path / "features") in made[0]
    assert str(tmp_path / "features") in fitted["doubly_stochastic_0"]
    assert "| λ | BLEU-4 | pointing | mass in the box | evenness | minutes |" in page
    assert "| 1 | 0.500 | 1.000 |" in page
