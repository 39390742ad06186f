"""`caption compare`: the scores and curves of runs that `caption fit` and `caption test` have written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from helpers.command_line import Cli, check_refused
from helpers.tiny_captioner import captioner, photo
from PIL import Image

from caption.core.errors import DataError
from caption.core.runtime.atomic_files import file_digest
from caption.models import checkpoint
from caption.text.vocabulary import Vocabulary
from caption.training.learning_curves import plot_learning_curves
from caption.training.run_results import read_run

pytestmark = pytest.mark.slow
REFERENCES = {
    "a": ["a red dog runs fast", "a dog"],
    "b": ["two cats sit here"],
    "c": ["a man walks away"],
    "d": ["an old house stands there"],
}
GOOD = {"a": "a red dog runs fast", "b": "two cats sit here", "c": "a man walks home", "d": "an old house"}
BAD = {"a": "a cat sits", "b": "two dogs run", "c": "a man sits down", "d": "the sky"}


def make_run(folder: Path, captions: dict[str, str] | None, cider: list[float]) -> None:
    """The folder of a run of some epochs, resumed after the second one, then tested, if there are captions."""
    for version, epochs in enumerate((range(len(cider))[:2], range(len(cider))[2:])):
        logs = folder / "logs" / f"version_{version}"
        logs.mkdir(parents=True)
        rows = [f"{e},{e},,{cider[e]},{3 - cider[e]}\n{e},{e},{4 - e},,\n" for e in epochs]
        (logs / "metrics.csv").write_text("epoch,step,train/loss,val/CIDEr,val/NLL\n" + "".join(rows))
    tested = folder / "logs" / "version_10"
    tested.mkdir()
    (tested / "metrics.csv").write_text("epoch,step,val/CIDEr\n0,0,9.0\n")
    (tested / "config.yaml").write_text("verbose: true\n")  # an evaluation's
    checkpoint.save(captioner(), folder / "best.ckpt")
    if captions is None:
        return
    signature = "tok:ptb-1|split:test|search:BeamSearch(beam_size=3)|v:1"
    scores = {"signature": signature, "model": {"digest": file_digest(folder / "best.ckpt")}}
    results = [{"image_id": image, "caption": text} for image, text in captions.items()]
    for name, content in {"scores": scores, "captions": results, "references": REFERENCES}.items():
        (tested / f"test_{name}.json").write_text(json.dumps(content))


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "good", GOOD, [0.1, 0.5, 0.9, 0.7])
    make_run(tmp_path / "runs" / "bad", BAD, [0.1, 0.2, 0.15])
    photo(80, 40, 0).save("x.png")
    return ["runs/good", "runs/bad"]


def test_the_curves_of_a_resumed_run_are_joined_and_its_best_epoch_chose_the_checkpoint(runs: list[str]):
    run = read_run("runs/good")
    assert run.curves["val/CIDEr"] == {0: 0.1, 1: 0.5, 2: 0.9, 3: 0.7}  # without those of evaluations
    assert run.curves["train/loss"] == {0: 4.0, 1: 3.0, 2: 2.0, 3: 1.0}
    assert (run.best_epoch, run.epochs) == (2, 4)
    assert run.protocol == {"split": "test", "search": "BeamSearch(beam_size=3)"}
    for monitor, mode, epoch in (("train/loss", "min", 3), ("val/NLL", "max", 0), ("null", "min", 2)):
        config = f"checkpoint:\n  monitor: {monitor}\n  mode: {mode}\n"
        Path("runs/good/logs/version_1/config.yaml").write_text(config)
        assert read_run("runs/good").best_epoch == epoch


def test_scores_have_intervals_and_paired_differences(cli: Cli, runs: list[str]):
    ran = cli("compare", *runs)
    assert (ran.code, ran.err) == (0, "")
    assert "good       4     3  0.9000       –        2.1000" in ran.out
    assert "bad less good" in ran.out
    assert "search:BeamSearch(beam_size=3)" in ran.out
    entries = json.loads(cli("compare", *runs, "--format", "json").out)["runs"]
    files = [next(Path(run).rglob("test_captions.json")) for run in runs]
    scored = cli(
        "score", "--references", next(Path(runs[0]).rglob("test_references.json")), "--candidates", *files,
        "--confidence", "--format", "json",
    )  # fmt: skip
    for entry, expected in zip(entries, json.loads(scored.out)["candidates"], strict=True):
        assert entry["test"]["scores"] == expected["scores"]
        assert entry["test"]["intervals"] == expected["intervals"]
    assert entries[1]["test"]["comparison"] == json.loads(scored.out)["candidates"][1]["comparison"]
    assert entries[0]["validation"]["CIDEr"] == 0.9
    for file in Path().rglob("test_references.json"):
        shutil.move(file, "mine.json")
    assert "name them with --references" in cli("compare", *runs).err
    assert "bad less good" in cli("compare", *runs, "--references", "mine.json").out


def test_a_run_tested_with_other_references_is_named_and_left_out(cli: Cli, runs: list[str]):
    make_run(Path("runs/third"), BAD, [0.3])
    path = next(Path("runs/bad").rglob("test_references.json"))
    path.write_text(json.dumps(REFERENCES | {"b": ["two dogs run"]}))
    ran = cli("compare", *runs, "runs/third")
    assert ran.code == 1
    assert "bad was tested with other references than good, so its scores are left out" in ran.err
    assert ("bad less good" in ran.out, "third less good" in ran.out) == (False, True)
    assert "bad         3     2  0.2000" in ran.out  # its validation is shown
    ran = cli("compare", *runs, "--references", path)
    assert (ran.code, ran.err) == (0, "")
    assert "bad less good" in ran.out
    path.write_text(json.dumps(dict(reversed(REFERENCES.items()))))
    assert cli("compare", *runs).code == 0  # another order of the images


def test_scores_of_different_tokenizers_are_not_compared(cli: Cli, runs: list[str]):
    make_run(Path("runs/third"), BAD, [0.3])
    path = next(Path("runs/bad").rglob("test_scores.json"))
    path.write_text(path.read_text().replace("tok:ptb-1", "tok:characters-1"))
    ran = cli("compare", *runs, "runs/third")
    assert ran.code == 1
    assert "bad was tested with another tokenizer than good, so their scores are not compared" in ran.err
    assert ("bad less good" in ran.out, "third less good" in ran.out) == (False, True)
    assert "tok:characters-1|" in ran.out  # its scores are shown


def test_a_run_that_is_not_tested_is_named_and_the_others_are_compared(cli: Cli, runs: list[str]):
    make_run(Path("runs/new"), None, [0.3])
    ran = cli("compare", *runs, "runs/new/")
    assert ran.code == 1
    assert "new is not tested: caption test -c CONFIG --ckpt_path runs/new/best.ckpt adds" in ran.err
    assert "new        1     1  0.3000" in ran.out
    assert "bad less good" in ran.out
    assert "test split" not in cli("compare", "runs/new").out


def test_the_model_of_a_run_without_validation_is_its_last_one(cli: Cli, runs: list[str]):
    run = Path("runs/new")
    write_logs(run, 0, None, ["0,1,4,"])
    shutil.copy("runs/good/best.ckpt", run / "last.ckpt")
    assert "--ckpt_path runs/new/last.ckpt adds its scores" in cli("compare", *runs, run).err
    shutil.copytree("runs/good/logs/version_10", run / "logs" / "version_1")
    ran = cli("compare", *runs, run)
    assert (ran.code, "new less good" in ran.out) == (0, True)
    Path("runs/bad/best.ckpt").rename("runs/bad/last.ckpt")  # its epochs do not tell about the last model
    ran = cli("compare", *runs, run)
    assert (ran.code, "bad is not tested: it has no best.ckpt" in ran.err) == (1, True)


def test_epochs_that_were_not_logged_are_unknown(cli: Cli, runs: list[str]):
    """Of a run without validation, shorter than the interval of its logs."""
    write_logs(Path("runs/new"), 0, None, [])
    (line,) = [line for line in cli("compare", *runs, "runs/new").out.splitlines() if line.startswith("new ")]
    assert line.split() == ["new", *"––––"]
    assert json.loads(cli("compare", "runs/new", "--format", "json").out)["runs"][0]["epochs"] is None


def test_runs_are_named_as_their_folders(cli: Cli, runs: list[str], monkeypatch: pytest.MonkeyPatch):
    make_run(Path("sweep/lr_0.001"), GOOD, [0.3])
    make_run(Path("sweep/bad"), BAD, [0.3])
    out = cli("compare", "sweep/lr_0.001/", "runs/bad").out
    assert "bad less lr_0.001" in out
    assert ["lr_0.001", "1", "1"] in [line.split()[:3] for line in out.splitlines()]
    assert "sweep/bad less runs/bad" in cli("compare", "runs/bad", "sweep/bad/").out
    monkeypatch.chdir("runs/good")
    assert "bad less good" in cli("compare", ".", "../bad").out


def test_a_test_of_another_model_in_the_folder_is_not_that_of_the_run(cli: Cli, runs: list[str]):
    own, other = Path("runs/good/logs/version_10"), Path("runs/good/logs/version_11")
    shutil.copytree(own, other)
    (other / "test_captions.json").write_text((own / "test_captions.json").read_text().replace("dog", "cat"))
    best = Path("runs/good/best.ckpt")
    for digest, signature in (("0", "tok:ptb-1"), (file_digest(best), "tok:characters-1")):
        scores = {"signature": "tok:characters-1|split:test", "model": {"digest": digest}}
        (other / "test_scores.json").write_text(json.dumps(scores))
        assert signature in cli("compare", "runs/good").out
    best.write_bytes(b"another model")
    assert read_run("runs/good").captions is None


def test_nll_of_different_vocabularies_is_not_compared(cli: Cli, runs: list[str]):
    other = captioner()
    other.vocabulary = Vocabulary([*other.vocabulary.words[4:-1], "platypus"])
    checkpoint.save(other, "runs/bad/best.ckpt")
    Path("runs/good/logs/version_1/config.yaml").write_text("checkpoint:\n  monitor: val/NLL\n  mode: max\n")
    for change in ("another vocabulary", "unknown"):
        ran = cli("compare", *runs)
        assert "NLL and loss are left out: the vocabularies differ" in ran.err, change
        assert "NLL" not in ran.out
        assert "good       4     1  0.1000" in ran.out  # NLL still tells which epoch was best
        assert "NLL per word" in cli("compare", runs[0]).out
        entries = json.loads(cli("compare", *runs, "--format", "json").out)["runs"]
        assert [list(entry["validation"]) for entry in entries] == [["CIDEr"], ["CIDEr"]]
        Path("runs/bad/best.ckpt").unlink(missing_ok=True)


def test_curves_are_drawn(cli: Cli, runs: list[str]):
    ran = cli("compare", *runs, "--curves", "curves.png")
    assert (ran.code, ran.err) == (0, "")
    assert Image.open("curves.png").width > 400


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("runs/good runs/good", "named twice"),
        ("runs/good --curves x.png", "--curves would overwrite x.png"),
        ("runs/good --curves runs/good/best.ckpt", "--curves runs/good/best.ckpt: end its name in"),
    ],
)
def test_wrong_usage(args: str, message: str, runs: list[str], cli: Cli):
    check_refused(cli("compare", *args.split()), message)


def test_damaged_logs_are_named_and_links_out_of_a_run_not_followed(runs: list[str]):
    path = Path("runs/bad/logs/version_0/metrics.csv")
    path.write_text("epoch,train/loss\nx,1\n")
    with pytest.raises(DataError, match=r"version_0/metrics\.csv' is not a table"):
        read_run("runs/bad")
    tested, elsewhere = Path("runs/good/logs/version_10"), Path("elsewhere").absolute()
    shutil.move(tested, elsewhere)
    tested.symlink_to(elsewhere)
    assert read_run("runs/good").captions is None
    tested.unlink()
    shutil.copytree(elsewhere, tested)
    assert read_run("runs/good").captions is not None
    (tested / "test_captions.json").unlink()
    (tested / "test_captions.json").symlink_to(elsewhere / "test_captions.json")
    assert read_run("runs/good").captions is None


def test_curves_are_drawn_with_a_panel_for_each_number():
    fig = plot_learning_curves({"one": {"val/CIDEr": {0: 1.0, 1: 2.0}}, "two": {"train/loss": {0: 3.0}}})
    assert [ax.get_title(loc="left") for ax in fig.axes] == ["CIDEr, validation", "loss, training"]
    line = fig.axes[0].lines[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([1, 2], [1.0, 2.0])
    with pytest.raises(ValueError, match="no curve"):
        plot_learning_curves({"one": {}})
    with pytest.raises(ValueError, match="told apart"):
        plot_learning_curves({str(number): {"val/NLL": {0: 1.0}} for number in range(21)})


def test_all_validations_of_an_epoch_count(tmp_path: Path):
    """Two validations in each epoch, the second epoch resumed after its first one; the best is in its middle."""
    checkpoint.save(captioner(), tmp_path / "best.ckpt")
    for version, rows in enumerate((["0,1,,0.1", "0,3,4,", "0,4,,0.2", "1,6,,0.9"], ["1,8,2,", "1,9,,0.3"])):
        logs = tmp_path / "logs" / f"version_{version}"
        logs.mkdir(parents=True)
        (logs / "metrics.csv").write_text("\n".join(["epoch,step,train/loss,val/CIDEr", *rows]))
    run = read_run(str(tmp_path))
    assert run.curves["val/CIDEr"] == {-0.5: 0.1, 0: 0.2, 0.5: 0.9, 1: 0.3}
    assert (run.best_epoch, run.epochs) == (0.5, 2)


def write_logs(
    folder: Path, version: int, resumed: str | None, rows: list[str], monitor: str = "val/CIDEr"
) -> None:
    """The logs of one start of a training."""
    logs = folder / "logs" / f"version_{version}"
    logs.mkdir(parents=True)
    config = {"ckpt_path": resumed, "checkpoint": {"monitor": monitor, "mode": "min"}}
    (logs / "config.yaml").write_text(json.dumps(config))
    (logs / "metrics.csv").write_text("\n".join(["epoch,step,train/loss,val/CIDEr", *rows]))


def test_a_new_training_in_the_folder_replaces_the_earlier_one(tmp_path: Path):
    """Its checkpoints were deleted. A start that failed before its first step replaces nothing."""
    write_logs(tmp_path, 0, None, ["0,1,4,", "0,4,,0.5", "1,9,,0.6", "2,14,,0.9"])
    write_logs(tmp_path, 1, None, [], "train/loss")
    run = read_run(str(tmp_path))
    assert (run.curves["val/CIDEr"], run.watched[0]) == ({0: 0.5, 1: 0.6, 2: 0.9}, "val/CIDEr")
    write_logs(tmp_path, 2, None, ["0,4,,0.1", "1,9,,0.2"], "train/loss")
    run = read_run(str(tmp_path))
    assert run.curves == {"val/CIDEr": {0: 0.1, 1: 0.2}}
    assert (run.watched[0], run.epochs) == ("train/loss", 2)


def test_epochs_after_the_resumed_checkpoint_are_those_of_the_resumed_run(tmp_path: Path):
    """From the best of three epochs of five steps, with larger batches: two steps in each further epoch."""
    write_logs(tmp_path, 0, None, ["0,3,4,", "0,4,,0.9", "1,8,3,", "1,9,,0.6", "2,13,2,", "2,14,,0.5"])
    write_logs(tmp_path, 1, "run/best.ckpt", ["1,5,3.5,", "1,6,,1.0"])
    run = read_run(str(tmp_path))
    assert run.curves == {"train/loss": {0: 4, 1: 3.5}, "val/CIDEr": {0: 0.9, 1: 1.0}}
    assert (run.best_epoch, run.epochs) == (0, 2)
