"""The tool that measures the doubly stochastic term."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import tiny_captioner
from PIL import Image

from tools.reproduce import coverage, flickr8k, hard, models, tasks
from tools.reproduce.__main__ import main

SCORES = {"BLEU-4": 0.5, "attention_evenness": 0.9, "attention_entropy_max": 4.16}
NAMES = ("soft", "doubly_stochastic_tenth", "doubly_stochastic")


@pytest.fixture
def fitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The arguments of each training, by the folder's name."""
    fitted: dict[str, list[str]] = {}
    monkeypatch.setattr(models, "fit", lambda folder, arguments: fitted.update({folder.name: arguments}))
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
    assert list(fitted) == [f"{name}_{seed}" for seed in (0, 1) for name in NAMES]
    soft, tenth = fitted["soft_1"], fitted["doubly_stochastic_tenth_1"]
    added = [argument for argument in tenth if argument not in soft]
    assert [Path(argument).parts[-2:] for argument in added] == [("training", "doubly_stochastic_tenth.yaml")]
    assert "| λ | seeds | BLEU-4 | evenness |" in page
    assert "| 0.1 | 2 | 0.500 ± 0.000 | 0.900 ± 0.000 |" in page
    assert "log L = 4.16 nats" in page


def test_a_published_run_is_not_repeated(tmp_path: Path, fitted: dict[str, list[str]]):
    run(tmp_path, "--models", "soft", "--seeds", "1")
    fitted.clear()
    page = run(tmp_path, "--models", "soft", "doubly_stochastic", "--seeds", "1")
    assert list(fitted) == ["doubly_stochastic_1"]
    published = json.loads((tmp_path / "doubly_stochastic_on_shapes.json").read_text())
    assert list(published) == ["soft", "doubly_stochastic"]
    assert "coverage --seeds 1`" in page


@pytest.mark.parametrize("task", [tasks.SHAPES, tasks.FLICKR8K])
def test_without_the_term_it_is_the_soft_model_of_the_table_of_hard_attention(
    tmp_path: Path, task: tasks.Task
):
    one, other = coverage.models(task), hard.models(task)
    assert models.digest(one, "soft", []) == models.digest(other, "soft", [])
    mine, theirs = (models.arguments(each, tmp_path, "soft", 0, []) for each in (one, other))
    assert mine == theirs


def test_flickr8k_needs_the_photos_with_boxes(tmp_path: Path, fitted: dict[str, list[str]]):
    with pytest.raises(SystemExit, match="needs both --data"):
        run(tmp_path, "--photos", str(tmp_path))
    assert fitted == {}


def test_photos_have_stored_regions_and_boxes(
    tmp_path: Path, fitted: dict[str, list[str]], monkeypatch: pytest.MonkeyPatch
):
    made: list[tuple[str, ...]] = []
    monkeypatch.setattr(tasks, "run", lambda *arguments: made.append(arguments))
    monkeypatch.setattr(flickr8k, "best_beam", lambda data, folder, mine: (7, {}))
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
    assert "| λ | seeds | BLEU-4 | pointing | mass in the box | evenness |" in page
    assert "| 1 | 1 | 0.500 | 1.000 |" in page
