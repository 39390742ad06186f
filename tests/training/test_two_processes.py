"""Training, testing and predicting in two processes that torchrun starts, against one process."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import yaml
from helpers.command_line import TINY
from helpers.torchrun import torchrun
from torch import Tensor, distributed

from caption import load
from caption.cli.training import command as cli
from caption.core.errors import Stopped
from caption.data.shapes.dataset import write_shapes
from caption.training.module import CaptionTraining

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(not distributed.is_available(), reason="torch was built without distributed"),
]

SPLITS = {"train": 8, "val": 2, "test": 7}
"""A process validates on one image, on which alone CIDEr would be 0."""
SOFT: dict[str, Any] = {"alignment": "Softmax"}
"""Other objectives in two processes are in tests/objectives/test_shares_of_a_batch.py."""
DRAWING: dict[str, Any] = {
    "alignment": "Multinoulli",
    "objective": {"class_path": "caption.objectives.Reinforce", "init_args": {"reward_weight": 0.1}},
    "dropout": 0.3,
    "encoder_learning_rate": 0.01,
}
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
    decoder["initial"] = {"class_path": "caption.decoders.InitialState"}
    for part in ("readout", "initial"):
        decoder[part]["init_args"] = {"dropout": dropout}
    decoder["dropout"] = dropout
    del config["model"]["encoder_learning_rate"]
    optimizer = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.1, "momentum": 0.9}}
    config["model"] |= {"optimizer": optimizer, **model}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


class StoppedTraining(CaptionTraining):
    """One of the two processes is signalled inside the second epoch, in which the encoder begins to learn."""

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        if (self.global_rank, self.current_epoch, batch_idx) == (1, 1, 0):
            os.kill(os.getpid(), signal.SIGTERM)
        return super().training_step(batch, batch_idx)


def fit(config: Path, training: type[CaptionTraining] = CaptionTraining) -> CaptionTraining:
    cli.CaptionTraining = training
    try:
        return cli.run(["fit", "-c", str(config)]).model
    finally:
        cli.CaptionTraining = CaptionTraining


def metrics(folder: Path) -> list[dict[str, float]]:
    """What a training has logged, but times."""
    rows = csv.DictReader((folder / "logs" / "version_0" / "metrics.csv").open())
    return [{key: float(row[key]) for key in row if row[key] and not key.endswith("time")} for row in rows]


class Two(NamedTuple):
    """What two processes did."""

    folder: Path
    weights: list[dict[str, Tensor]]
    drawn: list[Tensor]
    stderr: str


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Two:
    """A training, and one that runs through as well as being stopped and resumed; prediction and test."""
    folder = tmp_path_factory.mktemp("two")
    write_shapes(folder / "shapes", **SPLITS, size=48)
    configuration(folder, "soft_two", 2, **SOFT)
    for name in ("whole", "stopped"):
        configuration(folder, name, 2, **DRAWING)
    write_shapes(folder / "one_image", **SPLITS | {"test": 1}, size=48)
    done = torchrun(Path(__file__), folder)
    both = [torch.load(folder / f"soft.{rank}.pt", weights_only=True) for rank in (0, 1)]
    weights, drawn = zip(*both, strict=True)
    return Two(folder, weights, drawn, done.stderr)


def test_two_processes_with_half_the_batch_learn_what_one_learns_with_the_whole(two: Two, lightning: None):
    one = fit(configuration(two.folder, "soft_one", 4, **SOFT)).state_dict()
    expected, logged = metrics(two.folder / "soft_one"), metrics(two.folder / "soft_two")
    assert len(expected) == len(logged) > 4
    for mine, theirs in zip(logged, expected, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-5)
    first, second = two.weights
    for key, weight in one.items():
        torch.testing.assert_close(first[key], weight, rtol=1e-5, atol=1e-5, msg=key)
        assert torch.equal(first[key], second[key])
    assert not torch.equal(*two.drawn)  # dropout and samples differ between processes


def test_an_encoder_that_learns_stays_the_same_in_all_processes(two: Two):
    first, second = (torch.load(two.folder / f"whole.{rank}.pt", weights_only=True) for rank in (0, 1))
    for name, weight in first.items():
        assert torch.equal(weight, second[name]) or "running" in name
    assert "BatchNorm" in two.stderr
    assert "sync_dist" not in two.stderr


def test_every_image_is_predicted_and_scored_once_in_the_order_of_the_data(two: Two):
    """Seven images, or one, do not divide among two processes: Lightning repeats one of them to test."""
    model = load(two.folder / "soft_two" / "best.ckpt")
    photos = json.loads((two.folder / "shapes" / "test.json").read_text())["images"]
    files = [str(two.folder / "shapes" / "images" / photo["file_name"]) for photo in photos]
    pairs = zip(photos, model.describe(files), strict=True)
    expected = [{"image_id": photo["id"], "caption": caption.text} for photo, caption in pairs]
    for name, count in (("soft_two", 7), ("few", 1)):
        for file in ("predictions.json", "test_captions.json"):
            (written,) = (two.folder / name).rglob(file)
            assert json.loads(written.read_text()) == expected[:count]


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
    torch.save((fit(folder / "soft_two.yaml").state_dict(), torch.rand(4)), folder / f"soft.{rank}.pt")
    torch.save(fit(folder / "whole.yaml").state_dict(), folder / f"whole.{rank}.pt")
    with suppress(Stopped):
        fit(folder / "stopped.yaml", StoppedTraining)
    distributed.barrier()
    if rank == "0":
        shutil.copy(folder / "stopped" / "last.ckpt", folder / "stopped.ckpt")
    distributed.barrier()
    cli.run(["fit", "-c", str(folder / "stopped.yaml"), "--ckpt_path", "auto"])
    model = ["-c", str(folder / "soft_two.yaml"), "--ckpt_path", str(folder / "soft_two" / "best.ckpt")]
    few = ["--trainer.default_root_dir", str(folder / "few"), "--data.reader.init_args.test", "1"]
    for verb in ("predict", "test"):
        cli.run([verb, *model, *few, "--data.reader.init_args.folder", str(folder / "one_image")])
    cli.run(["predict", *model])
    cli.main(["test", *model])
