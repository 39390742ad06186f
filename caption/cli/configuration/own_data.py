"""A training configuration for the user's own data: one that comes with the package, with its data replaced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from caption.cli.configuration.config_files import read_config
from caption.core.errors import DataError
from caption.core.runtime.atomic_files import creating

if TYPE_CHECKING:
    from caption.core.parts import Spec
    from caption.data.check import Check

STEPS = 20
"""Least number of batches in an epoch: a small data set gets small batches."""
SMALLEST_BATCH = 4
LOGGED = 4
"""Least number of times that an epoch logs."""
STORED_FROM = 1000
"""Least number of photos whose regions are stored, if the encoder does not learn; computing those of fewer takes less
than a minute in each epoch."""
FINE_TUNING_STEPS = 60
"""Number of batches of fine-tuning for which its learning rate was chosen (docs/own-data.md)."""
FEWEST_EPOCHS, MOST_EPOCHS = 3, 8

HEADER = """\
# Written by `caption check {data} --write {path}`: {base}, with this data.
#
{commands}
"""


def warm_start(config: Mapping[str, Any]) -> str | None:
    """The model that a configuration starts from."""
    model = (config.get("model") or {}).get("warm_start")
    return model if isinstance(model, str) else None


def own_data_configuration(
    base: str, name: str, reader: Spec, limits: Mapping[str, Any], check: Check
) -> dict[str, Any]:
    """The configuration `base`, a path or name, for other data; its run is runs/NAME, its regions runs/NAME_features.

    The batch size and the logging interval depend on the number of training images. So does the number of epochs if
    training starts from another model: otherwise a small data set would hardly change it, and a large one too much.

    Raises:
        DataError: the data has no training or validation images.
    """
    for split in ("train", "val"):
        if split not in check.splits or not check.splits[split].images:
            raise DataError(
                f"the data has no images in the split {split}, which training needs: give fractions, such as --splits "
                "train=0.7 val=0.15 test=0.15, or name the splits in the data"
            )
    config = read_config(base)
    trainer, data = config["trainer"], config["data"]
    trainer["default_root_dir"] = f"runs/{name}"
    data |= {"reader": dict(reader), **limits}
    images = check.splits["train"].images
    data["batch_size"] = min(data.get("batch_size", 64), max(SMALLEST_BATCH, images // STEPS))
    batches = max(1, images // data["batch_size"])
    trainer["log_every_n_steps"] = min(trainer.get("log_every_n_steps", 50), max(1, batches // LOGGED))
    if warm_start(config) is not None:
        _set_epochs(config, min(MOST_EPOCHS, max(FEWEST_EPOCHS, math.ceil(FINE_TUNING_STEPS / batches))))
    encoder_is_frozen = config["model"].get("encoder_learning_rate") is None
    if encoder_is_frozen and sum(split.images for split in check.splits.values()) >= STORED_FROM:
        data["features"] = f"runs/{name}_features"
        data.pop("flip", None)  # needs a store of its own
    else:
        data.pop("features", None)
    return config


def _set_epochs(config: dict[str, Any], epochs: int) -> None:
    """Set the number of epochs, and with it the end of a schedule that ends with the training."""
    config["trainer"]["max_epochs"] = epochs
    schedule = (config["model"].get("scheduler") or {}).get("init_args") or {}
    if "T_max" in schedule:
        schedule["T_max"] = epochs


def next_commands(path: Path, config: Mapping[str, Any]) -> list[str]:
    """The commands that use a configuration, up to a caption."""
    folder = config["trainer"]["default_root_dir"]
    model = warm_start(config)
    encoder = "" if model is None else f" --model {model}"
    store = [f"caption features -c {path}{encoder} --out {config['data'].get('features')}"]
    return [
        *(store if "features" in config["data"] else []),
        f"caption fit -c {path}",
        f"caption describe PHOTO --model {folder}/best.ckpt",
    ]


def write_configuration(path: Path, config: Mapping[str, Any], data: str, base: str) -> None:
    """Write a configuration, with the commands that use it in its first lines; never over another file.

    Raises:
        OutputError: the file exists, or cannot be written.
    """
    commands = next_commands(path, config)
    folder = config["trainer"]["default_root_dir"]
    commands.insert(-1, f"caption test -c {path} --ckpt_path {folder}/best.ckpt")
    header = HEADER.format(
        data=data, path=path, base=base, commands="\n".join(f"#   {line}" for line in commands)
    )
    with creating(path) as file:
        text = header + yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        file.write(text.encode("utf-8", "replace"))
