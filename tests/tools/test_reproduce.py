"""The tool that reproduces results: what is done is not repeated, and what was stopped is not taken for done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.command_line import Trained

from caption.metrics.java import java_fault
from tools.reproduce import coverage, flickr8k, hard, models, tasks
from tools.reproduce import runs as tool
from tools.reproduce.__main__ import main

RESULTS = Path(__file__).parents[2] / "docs" / "results"


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


@pytest.fixture
def flickr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """What was trained and tested. On dev, beam 7 is best for seed 0 and beam 3 for seed 1; on test, beam 7 always."""
    dev = {(0, 3): 0.1, (0, 5): 0.1, (0, 7): 0.2, (1, 3): 0.3, (1, 5): 0.1, (1, 7): 0.2}
    done: dict[str, list[Any]] = {"trained": [], "tested": [], "regions": [], "flips": [], "stored": []}

    def fit(folder: Path, arguments: list[str]) -> Path:
        if not (folder / "done").exists():
            (folder / "logs" / "version_0").mkdir(parents=True)
            lines = "epoch,train/NLL,val/NLL,val/CIDEr\n0,4.0,,\n0,3.0,,\n0,,3.25,0.2\n1,2.0,,\n1,,3.0,0.4\n"
            (folder / "logs" / "version_0" / "metrics.csv").write_text(lines)
            (folder / "done").write_text("120 seconds of training\n")
            done["trained"].append((folder.name, [each for each in arguments if "warm_start" in each]))
            done["regions"].append(arguments[arguments.index("--data.features") + 1])
            flip = "--data.flip.features"
            done["flips"].append(arguments[arguments.index(flip) + 1] if flip in arguments else None)
        return folder / "best.ckpt"

    def tested(folder: Path, file: Path, arguments: list[str]) -> dict[str, Any]:
        beam = int(next(each for each in arguments if "beam_size" in each).partition("=")[2])
        splits = [each for each in arguments if "splits" in each][-1]
        lists = json.loads(splits.partition("=")[2])
        assert len(set(lists.values())) == 3  # no image is in two splits, which `caption test` refuses
        on_dev = lists["test"].endswith("devImages.txt")
        assert on_dev == file.name.startswith("dev")
        done["tested"].append((folder.name, file.stem))
        bleu = dev[int(folder.name[-1]), beam] if on_dev else 0.5 + beam / 100
        return {"scores": {"BLEU-4": bleu, "CIDEr": 2 * bleu}}

    monkeypatch.setattr(models, "fit", fit)
    monkeypatch.setattr(flickr8k, "test", tested)
    monkeypatch.setattr(flickr8k, "run", lambda *arguments: done["stored"].append(arguments))
    monkeypatch.setattr(flickr8k, "further_scores", lambda *files: {flickr8k.UNPENALISED: 0.6})
    sections = "".join(
        f"<!-- section {each} begins -->\n\n<!-- section {each} ends -->\n" for each in SECTIONS
    )
    (tmp_path / "results.md").write_text(sections)
    return done


SECTIONS = ("flickr8k", "flickr8k_steps")


def reproduce(tmp_path: Path, *arguments: str, out: str = "runs") -> str:
    """The document that the tool wrote."""
    document = tmp_path / "results.md"
    places = ["--data", str(tmp_path), "--out", str(tmp_path / out), "--document", str(document)]
    assert main(["flickr8k", *places, *arguments]) == 0
    return document.read_text()


def test_flickr8k_chooses_the_beam_on_dev_and_tests_once(tmp_path: Path, flickr: dict[str, list[Any]]):
    text = reproduce(tmp_path, "--models", "hard", "--seeds", "0", "1")
    assert [name for name, _ in flickr["trained"]] == ["soft_0", "hard_0", "soft_1", "hard_1"]
    assert flickr["trained"][1][1] == [f"--model.warm_start={tmp_path / 'runs' / 'soft_0' / 'best.ckpt'}"]
    on_test = [each for each in flickr["tested"] if each[1].startswith("test")]
    assert on_test == [("hard_0", "test_beam7"), ("hard_1", "test_beam3")]
    assert "| hard, from soft, decoded by expectation | 2 | 7, 3 |" in text
    assert "| 0.550 ± 0.028 | 0.600 ± 0.000 |" in text


def test_flickr8k_keeps_runs_beside_the_document(tmp_path: Path, flickr: dict[str, list[Any]]):
    """Another folder, as in a fresh clone: seed 0 is not repeated, and its soft model is not needed."""
    reproduce(tmp_path, "--models", "hard", "--seeds", "0")
    text = reproduce(tmp_path, "--models", "hard", "--seeds", "0", "1", out="anew")
    assert [name for name, _ in flickr["trained"]] == ["soft_0", "hard_0", "soft_1", "hard_1"]
    assert "| 2 | 7, 3 |" in text
    assert (tmp_path / "learning_curves.png").stat().st_size > 10_000


def test_flickr8k_repeats_runs_of_other_settings(tmp_path: Path, flickr: dict[str, list[Any]]):
    reproduce(tmp_path, "--models", "soft", "--seeds", "0")
    text = reproduce(
        tmp_path, "--models", "soft", "--seeds", "0", "--trainer.precision=bf16-mixed", out="anew"
    )
    assert [name for name, _ in flickr["trained"]] == ["soft_0", "soft_0"]
    assert "`--trainer.precision=bf16-mixed`" in text


def test_models_of_larger_and_mirrored_photos_have_regions_of_their_own(
    tmp_path: Path, flickr: dict[str, list[Any]]
):
    reproduce(tmp_path, "--models", "smoothed_largest", "--seeds", "0")
    names = ("features", "larger_features", "largest_features", "largest_mirrored_features")
    own, larger, largest, mirrored = (str(tmp_path / "runs" / name) for name in names)
    stores = [each[each.index("--out") + 1] for each in flickr["stored"]]
    assert stores == [own, larger, largest, mirrored]
    assert ["--mirrored" in each for each in flickr["stored"]] == [False, False, False, True]
    configs = [any("larger_input" in part for part in each) for each in flickr["stored"]]
    assert configs == [False, True, False, False]
    assert flickr["regions"] == [own, larger, larger, largest]
    assert flickr["flips"] == [None, None, None, mirrored]


def test_a_curve_joins_the_logs_of_a_resumed_training(tmp_path: Path):
    for version, lines in enumerate(("0,4.0,\n0,2.0,\n0,,0.2\n1,2.0,\n", "1,1.0,\n1,,0.4\n")):
        (tmp_path / "logs" / str(version)).mkdir(parents=True)
        (tmp_path / "logs" / str(version) / "metrics.csv").write_text("epoch,train/NLL,val/CIDEr\n" + lines)
    assert tool.curve(tmp_path) == [{"train NLL": 3.0, "CIDEr": 0.2}, {"train NLL": 1.5, "CIDEr": 0.4}]


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
    scores = flickr8k.further_scores(tmp_path, tmp_path / "captions.json")
    assert scores[flickr8k.UNPENALISED] == pytest.approx(1)
    assert (flickr8k.METEOR in scores) == (java_fault("pycocoevalcap.meteor") is None)


@pytest.mark.parametrize(
    ("file", "rows"),
    [
        ("flickr8k", flickr8k.MODELS),
        ("hard_on_shapes", hard.models(tasks.SHAPES)),
        ("hard_on_flickr8k", hard.models(tasks.FLICKR8K)),
        ("doubly_stochastic_on_shapes", coverage.models(tasks.SHAPES)),
        ("doubly_stochastic_on_flickr8k", coverage.models(tasks.FLICKR8K)),
    ],
)
def test_published_runs_are_of_present_settings(file: str, rows: dict[str, models.Model]):
    """Others would be left out of the page by the next run of its command."""
    published = json.loads((RESULTS / f"{file}.json").read_text(encoding="utf-8"))
    stale = [
        (name, seed)
        for name, seeds in published.items()
        for seed, run in seeds.items()
        if name not in rows or run["digest"] != models.digest(rows, name, run["more"])
    ]
    assert published
    assert stale == []
