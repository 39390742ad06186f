"""Training, testing and predicting in two processes that torchrun starts, against one process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from helpers.command_line import TINY
from helpers.torchrun import torchrun
from torch import Tensor, distributed

from caption import load
from caption.attention.stochastic import override_draws, stochastic_parts
from caption.cli import train as cli
from caption.data.shapes.dataset import write_shapes
from caption.errors import Stopped
from caption.training.module import CaptionTraining

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not distributed.is_available(), reason="torch was built without distributed"),
]

SPLITS = {"train": 8, "val": 2, "test": 7}
"""A process validates on one image, on which alone CIDEr would be 0."""
SOFT: dict[str, Any] = {"alignment": "Softmax"}
HARD: dict[str, Any] = {
    "alignment": "Multinoulli",
    "objective": {"class_path": "caption.objectives.Reinforce", "init_args": {"reward_weight": 0.1}},
}
RUNS = {"soft": SOFT, "hard": HARD}
DRAWING: dict[str, Any] = {"dropout": 0.3, **HARD, "encoder_learning_rate": 0.01}
"""A training in which each process draws its own numbers, with an encoder that learns."""


def configuration(
    folder: Path, name: str, batch_size: int, alignment: str, dropout: float = 0.0, **model: Any
) -> Path:
    """Without dropout, whose random numbers are those of a process, unless they are wanted."""
    config = yaml.safe_load(TINY.format(folder=folder, shapes=folder / "shapes"))
    config["trainer"] |= {"default_root_dir": str(folder / name), "log_every_n_steps": 1}
    config["trainer"] |= {"enable_progress_bar": False, "enable_model_summary": False}
    config["data"]["reader"]["init_args"] |= SPLITS
    config["data"] |= {"batch_size": batch_size, "captions_per_image": 4}
    decoder = config["model"]["decoder"]["init_args"]
    decoder["attention"]["init_args"]["alignment"]["class_path"] = f"caption.attention.{alignment}"
    for part in ("readout", "initial"):
        decoder.setdefault(part, {"class_path": "caption.decoders.InitialState"})["init_args"] = {
            "dropout": dropout
        }
    decoder["dropout"] = dropout
    del config["model"]["encoder_learning_rate"]
    optimizer = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1, "momentum": 0.9}}
    config["model"] |= {"optimizer": optimizer, **model}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


class Finished(NamedTuple):
    """The state of a command at its end, in one of its processes."""

    weights: dict[str, Tensor]
    logged: list[dict[str, float]]
    drawn: Tensor


class WatchedTraining(CaptionTraining):
    """Logs each epoch, and reads the fourth region always, because two processes draw other numbers than one."""

    def on_fit_start(self) -> None:
        self.epochs: list[dict[str, float]] = []
        super().on_fit_start()

    def training_step(self, *batch: Any) -> Tensor:
        decoder = self.captioner.decoder
        with override_draws(decoder, fourth) if stochastic_parts(decoder) else nullcontext():
            return super().training_step(*batch)

    def on_train_epoch_end(self) -> None:
        super().on_train_epoch_end()
        self.epochs.append({name: float(value) for name, value in self.trainer.callback_metrics.items()})


class StoppedTraining(CaptionTraining):
    """One of the two processes is signalled inside the second epoch, in which the encoder begins to learn."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if (self.global_rank, self.current_epoch, batch_idx) == (1, 1, 0):
            os.kill(os.getpid(), signal.SIGTERM)
        return super().training_step(batch, batch_idx)


def fourth(log_weights: Tensor) -> Tensor:
    return torch.full(log_weights.shape[:-1], 3)


def run(config: Path, training: type[CaptionTraining]) -> Any:
    cli.CaptionTraining = training
    try:
        return cli.run(["fit", "-c", str(config)])
    finally:
        cli.CaptionTraining = CaptionTraining


def fit(config: Path) -> Finished:
    command = run(config, WatchedTraining)
    return Finished(command.model.state_dict(), command.model.epochs, torch.rand(4))


class Two(NamedTuple):
    """What two processes did: by name of the run, then by rank."""

    folder: Path
    fits: dict[str, list[Finished]]
    stderr: str


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Two:
    """Two trainings, and one that runs through as well as being stopped and resumed; prediction and test."""
    folder = tmp_path_factory.mktemp("two")
    write_shapes(folder / "shapes", **SPLITS, size=48)
    for name, model in RUNS.items():
        configuration(folder, f"{name}_two", 2, **model)
    for name in ("whole", "stopped"):
        configuration(folder, name, 2, **DRAWING)
    few = [
        {"image": str(image), "caption": "a", "split": split}
        for image, split in zip(sorted(folder.glob("shapes/images/*")), ("train", "test"), strict=False)
    ]
    (folder / "few.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in few))
    reader = {
        "class_path": "caption.data.readers.JsonLines",
        "init_args": {"captions": str(folder / "few.jsonl")},
    }
    layer = {"trainer": {"default_root_dir": str(folder / "few")}, "data": {"reader": reader}}
    (folder / "few.yaml").write_text(yaml.safe_dump(layer))
    done = torchrun(Path(__file__), folder)
    fits = {}
    for name in RUNS:
        both = [torch.load(folder / f"{name}.{rank}.pt", weights_only=True) for rank in (0, 1)]
        fits[name] = [Finished(*fields) for fields in both]
    return Two(folder, fits, done.stderr)


@pytest.mark.parametrize("name", ["soft", "hard"])
def test_two_processes_with_half_the_batch_learn_what_one_learns_with_the_whole(
    two: Two, name: str, lightning: None
):
    one = fit(configuration(two.folder, f"{name}_one", 4, **RUNS[name]))
    first, second = two.fits[name]
    assert len(one.logged) == 2
    for mine, theirs in zip(first.logged, one.logged, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-5)
    assert "train/loss" in one.logged[0]
    for key, weight in one.weights.items():
        torch.testing.assert_close(first.weights[key], weight, rtol=1e-5, atol=1e-5, msg=key)
        assert torch.equal(first.weights[key], second.weights[key])
    assert not torch.equal(first.drawn, second.drawn)  # dropout and samples differ between processes


def test_an_encoder_that_learns_stays_the_same_in_all_processes(two: Two):
    first, second = (torch.load(two.folder / f"whole.{rank}.pt", weights_only=True) for rank in (0, 1))
    learned = [name for name in first if name.startswith("captioner.encoder") and "running" not in name]
    for name in learned:
        assert torch.equal(first[name], second[name])
    assert "BatchNorm" in two.stderr
    assert "sync_dist" not in two.stderr


def test_every_image_is_predicted_and_scored_once_in_the_order_of_the_data(two: Two):
    """The seven images do not divide among two processes: Lightning repeats one of them to test."""
    model = load(two.folder / "soft_two" / "best.ckpt")
    photos = json.loads((two.folder / "shapes" / "test.json").read_text())["images"]
    captions = model.describe(
        [str(two.folder / "shapes" / "images" / photo["file_name"]) for photo in photos]
    )
    expected = [
        {"image_id": photo["id"], "caption": caption.text}
        for photo, caption in zip(photos, captions, strict=True)
    ]
    (predicted,) = (two.folder / "soft_two").rglob("predictions.json")
    assert json.loads(predicted.read_text()) == expected
    (tested,) = (two.folder / "soft_two").rglob("test_captions.json")
    assert json.loads(tested.read_text()) == expected


def test_one_image_is_predicted_and_tested_in_two_processes(two: Two):
    (predicted,) = (two.folder / "few").rglob("predictions.json")
    (tested,) = (two.folder / "few").rglob("test_captions.json")
    assert len(json.loads(predicted.read_text())) == 1
    assert predicted.read_text() == tested.read_text()


def test_stopped_in_one_of_two_processes_and_resumed_ends_with_the_same_bits(two: Two):
    stopped = torch.load(two.folder / "stopped.ckpt", weights_only=True)
    assert stopped["global_step"] == 3  # of two steps in each of two epochs
    resumed = torch.load(two.folder / "stopped" / "last.ckpt", weights_only=True)
    whole = torch.load(two.folder / "whole" / "last.ckpt", weights_only=True)
    assert resumed["global_step"] == whole["global_step"] == 4
    torch.testing.assert_close(resumed["state_dict"], whole["state_dict"], rtol=0, atol=0)
    momenta = [run["optimizer_states"][0]["state"] for run in (resumed, whole)]
    torch.testing.assert_close(*momenta, rtol=0, atol=0)


if __name__ == "__main__":
    folder, rank = Path(sys.argv[1]), os.environ["RANK"]
    for run_name in RUNS:
        torch.save(tuple(fit(folder / f"{run_name}_two.yaml")), folder / f"{run_name}.{rank}.pt")
    whole = run(folder / "whole.yaml", CaptionTraining)
    torch.save(whole.model.state_dict(), folder / f"whole.{rank}.pt")
    with suppress(Stopped):
        run(folder / "stopped.yaml", StoppedTraining)
    distributed.barrier()
    if rank == "0":
        shutil.copy(folder / "stopped" / "last.ckpt", folder / "stopped.ckpt")
    distributed.barrier()
    cli.run(["fit", "-c", str(folder / "stopped.yaml"), "--ckpt_path", "auto"])
    model = ["-c", str(folder / "soft_two.yaml"), "--ckpt_path", str(folder / "soft_two" / "best.ckpt")]
    for verb in ("predict", "test"):
        cli.run([verb, *model, "-c", str(folder / "few.yaml")])
    cli.run(["predict", *model])
    cli.main(["test", *model])
