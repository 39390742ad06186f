"""The tool that compares estimators of hard attention."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tools.reproduce import hard, models, tasks
from tools.reproduce.__main__ import main

WAYS = ("expectation", "argmax", "sample")


@pytest.fixture
def done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What was trained and tested. BLEU-4 is 0.5 with seed 0 and 0.7 with seed 1; argmax loses 0.1."""
    done: dict[str, list[Any]] = {"trained": [], "tested": []}

    def fit(folder: Path, arguments: list[str]) -> Path:
        start = [each.partition("=")[2] for each in arguments if "warm_start" in each]
        if not folder.exists():
            folder.mkdir(parents=True)
            done["trained"].append(
                (folder.name, start, [each for each in arguments if each.endswith(".yaml")])
            )
        return folder / "best.ckpt"

    def tested(folder: Path, file: Path, arguments: list[str]) -> dict[str, Any]:
        how = arguments[arguments.index("--model.at_test") + 1] if "--model.at_test" in arguments else None
        done["tested"].append((folder.name, how))
        bleu = (0.5 if folder.name.endswith("0") else 0.7) - 0.1 * (how == "argmax")
        return {"scores": {"BLEU-4": bleu, "attention_entropy": 1.0, "attention_entropy_max": 4.16}}

    monkeypatch.setattr(models, "fit", fit)
    monkeypatch.setattr(hard, "test", tested)
    monkeypatch.setattr(hard.checkpoint, "load", lambda best: None)
    monkeypatch.setattr(hard, "test_photos", lambda best: [])
    deleted = {"images": [0, 1], "words": [1, 3], "attention": [0.1, 0.2], "random": [0.5, 0.4]}
    monkeypatch.setattr(hard, "deletion", lambda captioner, photos: deleted)
    (tmp_path / "hard.md").write_text(
        "<!-- section hard_on_shapes begins -->\n<!-- section hard_on_shapes ends -->\n"
    )
    return done


def run(tmp_path: Path, *arguments: str) -> str:
    """The document that the tool wrote."""
    document = tmp_path / "hard.md"
    places = ["--out", str(tmp_path / "runs"), "--document", str(document)]
    assert main(["hard", *places, *arguments]) == 0
    return document.read_text()


def test_every_estimator_starts_from_the_soft_model_of_its_seed_or_from_scratch(
    tmp_path: Path, done: dict[str, list[Any]]
):
    run(tmp_path, "--models", "leave_one_out", "leave_one_out_from_scratch", "--seeds", "1")
    soft = str(tmp_path / "runs" / "soft_1" / "best.ckpt")
    names = {name: (start, [Path(file).stem for file in files]) for name, start, files in done["trained"]}
    assert names == {
        "soft_1": ([], ["shapes_soft"]),
        "leave_one_out_1": ([soft], ["shapes_hard", "leave_one_out"]),
        "leave_one_out_from_scratch_1": ([], ["shapes_soft", "leave_one_out"]),
    }


def test_hard_attention_is_read_in_three_ways_and_rows_have_every_seed(
    tmp_path: Path, done: dict[str, list[Any]]
):
    text = run(tmp_path, "--models", "soft", "averaged", "--seeds", "0", "1")
    ways = [(f"averaged_{seed}", how) for seed in (0, 1) for how in WAYS]
    assert sorted(done["tested"], key=str) == sorted([("soft_0", None), ("soft_1", None), *ways], key=str)
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| hard")]
    assert [row[1] for row in rows] == list(WAYS)
    assert [row[2] for row in rows] == [
        "0.600 (0.500, 0.700)",
        "0.500 (0.400, 0.600)",
        "0.600 (0.500, 0.700)",
    ]
    assert "| soft | – | 0.600 (0.500, 0.700) | 1.00 (1.00, 1.00) | 0.250 (0.250, 0.250) |" in text
    assert rows[1][-1].strip(" |") == ""  # the captions are those of the expectation


def test_a_published_run_is_not_repeated_unless_its_settings_change(
    tmp_path: Path, done: dict[str, list[Any]]
):
    run(tmp_path, "--models", "soft", "--seeds", "0")
    stored = json.loads((tmp_path / "hard_on_shapes.json").read_text())
    assert stored["soft"]["0"]["test"]["soft"]["BLEU-4"] == 0.5
    run(tmp_path, "--models", "soft", "--seeds", "0")
    assert len(done["tested"]) == 1
    run(tmp_path, "--models", "soft", "--seeds", "0", "--trainer.max_epochs=1")
    assert len(done["tested"]) == 2


def test_scores_of_the_development_split_are_those_of_the_chosen_beam():
    def run_with(beam: int, *bleu: float) -> dict[str, Any]:
        dev = {
            str(size): {"BLEU-4": score, "CIDEr": 0.5, "NLL": 3.0}
            for size, score in zip((3, 5), bleu, strict=True)
        }
        test = {"soft": {"BLEU-4": 0.9, "CIDEr": 0.9, "NLL": 2.0, "attention_entropy_max": 4.39}}
        deleted = {"words": [1], "attention": [0.1], "random": [0.5]}
        return {"more": [], "beam": beam, "dev": dev, "test": test, "deletion": deleted}

    runs = {("soft", 0): run_with(5, 0.1, 0.2), ("soft", 1): run_with(3, 0.4, 0.3)}
    dev = hard.report(tasks.FLICKR8K, runs).partition("Development split")[2]
    assert "| soft | 0.300 (0.200, 0.400) | 0.500 (0.500, 0.500) | 3.000 (3.000, 3.000) | 5, 3 |" in dev
