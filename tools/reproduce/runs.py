"""Trainings and tests that are done once, and go on after a stop."""

from __future__ import annotations

import csv
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from caption.checkpoint import read
from caption.cli.main import main as caption
from caption.runtime.files import replacing

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def run(*arguments: str) -> None:
    """Run one `caption` command; end the program with its exit code if it fails or is stopped."""
    print("+ caption", *arguments, file=sys.stderr)
    if code := caption(list(arguments)):
        sys.exit(code)


def fit(folder: Path, arguments: list[str]) -> Path:
    """Train into a folder, or go on, unless it is done; returns the best checkpoint."""
    done = folder / "done"
    if not done.exists():
        run("fit", *arguments, "--trainer.default_root_dir", str(folder), "--ckpt_path", "auto")
        state = read(folder / "last.ckpt")["callbacks"]["LastCheckpoint"]
        with replacing(done) as file:
            file.write(f"{state['trained_seconds']:.0f} seconds of training\n".encode())
    return folder / "best.ckpt"


def trained_seconds(folder: Path) -> int:
    """How long a finished training took."""
    return int((folder / "done").read_text(encoding="utf-8").split()[0])


def curve(folder: Path) -> list[dict[str, float]]:
    """Of each epoch the scores on the dev split and the NLL per word of both splits, from the log of a training.

    Of the training split it is the mean of the batches that were logged, with dropout.
    """
    names = {"train/NLL": "train NLL", "val/NLL": "dev NLL", "val/BLEU-4": "BLEU-4", "val/CIDEr": "CIDEr"}
    epochs: dict[int, dict[str, list[float]]] = {}
    for file in (folder / "logs").glob("*/metrics.csv"):
        with file.open(newline="") as lines:
            for line in csv.DictReader(lines):
                for name, title in names.items():
                    if line.get(name):
                        epochs.setdefault(int(line["epoch"]), {}).setdefault(title, []).append(
                            float(line[name])
                        )
    return [
        {title: round(statistics.mean(values), 4) for title, values in epochs[epoch].items()}
        for epoch in sorted(epochs)
    ]


def test(folder: Path, file: Path, arguments: list[str]) -> dict[str, Any]:
    """Test the best checkpoint of a folder; see `test_checkpoint`."""
    return test_checkpoint(folder / "best.ckpt", file, arguments)


def test_checkpoint(path: Path, file: Path, arguments: list[str]) -> dict[str, Any]:
    """Test a checkpoint, unless the file of its scores exists; returns what the file says.

    The captions come to lie beside it: `NAME_captions.json` for scores in `NAME.json`.
    """
    if not file.exists():
        folder = path.parent
        run("test", *arguments, "--trainer.default_root_dir", str(folder), "--ckpt_path", str(path))
        newest = max((folder / "logs").glob("*/test_scores.json"), key=lambda path: path.stat().st_mtime)
        _keep(newest.with_name("test_captions.json"), file.with_name(f"{file.stem}_captions.json"))
        _keep(newest, file)  # comes last: with it, the test is done
    return json.loads(file.read_text(encoding="utf-8"))


def _keep(source: Path, target: Path) -> None:
    with replacing(target) as file:
        file.write(source.read_bytes())
