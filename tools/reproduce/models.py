"""Models of a table, and their published runs: a JSON file beside the document."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from caption.runtime.files import replacing
from tools.reproduce.runs import CONFIGS, fit

Run = dict[str, Any]
Runs = dict[tuple[str, int], Run]
"""By model and seed."""
NUMBERS = {
    "BLEU-4": ("BLEU-4", 3),
    "CIDEr": ("CIDEr", 3),
    "NLL": ("NLL per word", 3),
    "pointing_accuracy": ("pointing", 3),
    "attention_in_box": ("mass in the box", 3),
    "attention_entropy": ("H[α], nats", 2),
}
"""Titles and decimals of scores; one that no run has is left out."""


class Model(NamedTuple):
    """A row of a table."""

    title: str
    configs: tuple[str, ...]
    """Files of `configs`, one laid over the other, without suffix."""
    warm_start: str | None = None
    """The model of the same seed from which the training starts."""
    regions: str | None = "features"
    """The folder of stored regions, or None: it learns from images."""
    mirrored: str | None = None
    """The folder of the stored regions of mirrored photos, or None: none are mirrored, or pixels."""
    more: tuple[str, ...] = ()
    """Further arguments of `caption fit` and `caption test`."""


def arguments(
    models: Mapping[str, Model], out: Path, name: str, seed: int, common: Sequence[str]
) -> list[str]:
    """What `caption fit` and `caption test` get for a model and seed, but for folders and checkpoints."""
    model = models[name]
    configs = [part for config in model.configs for part in ("-c", str(CONFIGS / f"{config}.yaml"))]
    regions = "null" if model.regions is None else str(out / model.regions)
    flip = [] if model.mirrored is None else ["--data.flip.features", str(out / model.mirrored)]
    seeded = ["--seed_everything", str(seed)]
    return [*configs, *model.more, *common, "--data.features", regions, *flip, *seeded]


def trained(models: Mapping[str, Model], out: Path, name: str, seed: int, common: Sequence[str]) -> Path:
    """The folder of a finished training; the model that it starts from is trained first."""
    warm = models[name].warm_start
    start = []
    if warm is not None:
        start = [f"--model.warm_start={trained(models, out, warm, seed, common) / 'best.ckpt'}"]
    folder = out / f"{name}_{seed}"
    fit(folder, [*arguments(models, out, name, seed, common), *start])
    return folder


def digest(models: Mapping[str, Model], name: str, more: Sequence[str]) -> str:
    """Of a model's configurations, those of the model that it starts from, and further arguments."""
    model = models[name]
    texts = [(CONFIGS / f"{config}.yaml").read_text(encoding="utf-8") for config in model.configs]
    start = [] if model.warm_start is None else [digest(models, model.warm_start, more)]
    settings = [line for text in texts for line in text.splitlines() if not line.lstrip().startswith("#")]
    return hashlib.sha256("\n".join([*settings, *model.more, *more, *start]).encode()).hexdigest()[:16]


def read_runs(file: Path, models: Mapping[str, Model], more: Sequence[str]) -> Runs:
    """The published runs, but for those of other settings."""
    if not file.exists():
        return {}
    content = json.loads(file.read_text(encoding="utf-8"))
    return {
        (name, int(seed)): run
        for name, seeds in content.items()
        for seed, run in seeds.items()
        if name in models and run["digest"] == digest(models, name, more)
    }


def write_runs(file: Path, models: Mapping[str, Model], runs: Mapping[tuple[str, int], Run]) -> None:
    """Write the runs in the order of `models`."""
    seeds = {
        name: {str(seed): runs[model, seed] for model, seed in sorted(runs) if model == name}
        for name in models
    }
    content = {name: of_model for name, of_model in seeds.items() if of_model}
    with replacing(file) as opened:
        opened.write((json.dumps(content, indent=1) + "\n").encode())
