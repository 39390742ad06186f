"""What a training run has left in its folder: its learning curves, the captions of its last test, its model."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caption.core.errors import DataError, UserError, printable
from caption.core.runtime.atomic_files import file_digest
from caption.data.text_files import field, read_json, read_text, read_yaml
from caption.metrics.caption_files import CaptionFile, read_captions
from caption.training.defaults import BEST, LAST, MONITOR
from caption.training.evaluator import REFERENCES, RESULTS

CAPTIONS, _, SCORES = RESULTS["test"]
PROTOCOL = ("split", "search", "hard")
"""Entries of a signature that tell how the captions were made."""

Curve = dict[float, float]
"""A number by epoch, from 0: by 2 at the end of epoch 2, by 1.5 in the middle of it."""


@dataclass(frozen=True)
class RunResults:
    """One run."""

    name: str
    """Its folder, as the user named it."""
    curves: dict[str, Curve]
    """Of each number that training has logged, such as "val/CIDEr"; of one of the training, the mean of each epoch."""
    watched: tuple[str, str]
    """The number that has chosen the best checkpoint, and its better direction, "min" or "max"."""
    captions: CaptionFile | None
    """Those of the last test of `model`; None if it was not tested."""
    references: str | None
    """The file of the references of that test."""
    protocol: dict[str, str]
    """How those captions were made: split, search, setting of hard attention."""
    tokenizer: str
    """By which that test was scored."""
    model: Path
    """The checkpoint of the best epoch, or the last one of a run without validation; it may be missing."""

    @property
    def best_epoch(self) -> float | None:
        """The place in `Curve` with the best value of the number that was watched; None without validation."""
        number, mode = self.watched
        curve = {
            epoch: value for epoch, value in self.curves.get(number, {}).items() if not math.isnan(value)
        }
        best = min if mode == "min" else max
        return best(curve, key=lambda epoch: curve[epoch], default=None)

    @property
    def epochs(self) -> int | None:
        """Number of epochs that were begun; None if nothing was logged."""
        return max((math.ceil(epoch) + 1 for curve in self.curves.values() for epoch in curve), default=None)


def read_run(name: str) -> RunResults:
    """Read the results in the folder of a run. Nothing outside it is read, whatever its links say.

    Raises:
        UserError: it is no folder, or not that of a run.
        DataError: a file in it is damaged.
    """
    folder = Path(name).expanduser()
    versions = list(_versions(folder))
    model = folder / BEST
    if not versions and not model.is_file():
        raise UserError(
            f"'{printable(name)}' is not the folder of a run, such as runs/shapes_soft: it has neither logs nor {BEST}"
        )
    logged: dict[str, Logged] = {}
    watched = (MONITOR, "max")
    for version in versions:
        config = _configuration(version)
        if "verbose" in config:  # an option of validate, test and predict alone
            continue
        new = _logged(version / "metrics.csv") if (version / "metrics.csv").is_file() else {}
        if not new:  # it failed before its first step was logged
            continue
        # A new training in the folder of an earlier one.
        if config.get("ckpt_path", version) is None:
            logged, watched = {}, (MONITOR, "max")
        # A resumed run goes on in another folder of logs; what came after its start belongs to the abandoned branch.
        start = min(place for numbers in new.values() for place in numbers)
        for metric in logged.keys() | new.keys():
            before = {place: value for place, value in logged.get(metric, {}).items() if place < start}
            logged[metric] = before | new.get(metric, {})
        checkpoints = config.get("checkpoint")
        if isinstance(checkpoints, dict) and checkpoints.get("monitor") is not None:
            watched = str(checkpoints["monitor"]), str(checkpoints.get("mode"))
    curves = {metric: _curve(metric, numbers) for metric, numbers in logged.items() if numbers}
    if watched[0] not in curves and not model.is_file():
        model = folder / LAST
    tests = [
        version for version in versions if (version / CAPTIONS).is_file() and (version / SCORES).is_file()
    ]
    digest = file_digest(model) if tests and model.is_file() else ""
    for tested in reversed(tests):
        scores = read_json(tested / SCORES)
        scored = scores.get("model")
        if isinstance(scored, dict) and scored.get("digest") == digest:
            break  # other models may have been tested in this folder, too
    else:
        return RunResults(name, curves, watched, None, None, {}, "ptb", model)
    protocol = _protocol(tested / SCORES, scores)
    references = tested / REFERENCES
    return RunResults(
        name,
        curves,
        watched,
        read_captions(str(tested / CAPTIONS)),
        str(references) if references.is_file() else None,
        {key: value for key, value in protocol.items() if key in PROTOCOL},
        protocol.get("tok", "ptb-1").rpartition("-")[0],
        model,
    )


def _versions(folder: Path) -> Iterator[Path]:
    """The folders of the run's logs, oldest first."""
    inside = folder.resolve()
    for path in sorted(folder.glob("logs/version_*"), key=lambda path: (len(path.name), path.name)):
        is_version = re.fullmatch(r"version_\d{1,9}", path.name) and path.is_dir()
        if is_version and all(file.resolve().is_relative_to(inside) for file in (path, *path.iterdir())):
            yield path


Logged = dict[tuple[int, int], float]
"""A number by epoch and step."""


def _logged(path: Path) -> dict[str, Logged]:
    """The numbers in one file of Lightning's."""
    name = f"'{printable(path)}'"
    numbers: dict[str, Logged] = {}
    try:
        for row in csv.DictReader(io.StringIO(read_text(path))):
            for metric, text in row.items():
                if metric and text and metric.startswith(("train/", "val/")):
                    numbers.setdefault(metric, {})[int(row["epoch"]), int(row["step"])] = float(text)
    except (csv.Error, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{name} is not a table of Lightning's ({type(error).__name__}: {error})") from None
    return numbers


def _curve(metric: str, numbers: Logged) -> Curve:
    """The curve of a number: the mean of each epoch of training; all validations, evenly spaced in their epoch."""
    by_epoch: dict[int, list[float]] = {}
    for (epoch, _), number in sorted(numbers.items()):
        by_epoch.setdefault(epoch, []).append(number)
    if metric.startswith("train/"):
        return {epoch: sum(values) / len(values) for epoch, values in by_epoch.items()}
    most = max(map(len, by_epoch.values()))
    return {
        epoch if place == most else epoch - 1 + place / most: value
        for epoch, values in by_epoch.items()
        for place, value in enumerate(values, start=1)
    }


def _configuration(version: Path) -> dict[str, Any]:
    """The options of the command that has written a folder of logs; empty if they are not there."""
    path = version / "config.yaml"
    config = read_yaml(path) if path.is_file() else {}
    return config if isinstance(config, dict) else {}


def _protocol(path: Path, scores: dict[str, Any]) -> dict[str, str]:
    """The entries of a signature of scores."""
    signature = field(scores, "signature", str, f"'{printable(path)}'")
    pairs = [entry.partition(":") for entry in signature.split("|")]
    return {key: value for key, _, value in pairs}
