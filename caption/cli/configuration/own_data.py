"""A training configuration for the user's own data: one that comes with the package, with its data exchanged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from caption.cli.configuration.files import read_config
from caption.errors import DataError
from caption.runtime.files import creating

if TYPE_CHECKING:
    from caption.data.check import Check
    from caption.parts import Spec

STEPS = 20
"""Batches that an epoch should have at least: a small data set gets small batches."""
SMALLEST_BATCH = 4

HEADER = """\
# Written by `caption check {data} --write {path}`: {base}, with this data.
#
{commands}
"""


def own_data_configuration(
    base: str, name: str, reader: Spec, limits: Mapping[str, Any], check: Check
) -> dict[str, Any]:
    """The configuration `base`, a path or name, for other data; its run is runs/NAME, its regions runs/NAME_features.

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
    config["trainer"]["default_root_dir"] = f"runs/{name}"
    data = config["data"]
    data |= {"reader": dict(reader), **limits}
    batch = max(SMALLEST_BATCH, check.splits["train"].images // STEPS)
    data["batch_size"] = min(data.get("batch_size", 64), batch)
    if "features" in data:
        data["features"] = f"runs/{name}_features"
    return config


def write_configuration(path: Path, config: Mapping[str, Any], data: str, base: str) -> None:
    """Write a configuration, with the commands that use it in its first lines; never over another file.

    Raises:
        OutputError: the file exists, or cannot be written.
    """
    folder = config["trainer"]["default_root_dir"]
    commands = [
        f"caption fit -c {path}",
        f"caption test -c {path} --ckpt_path {folder}/best.ckpt",
        f"caption describe PHOTO --model {folder}/best.ckpt",
    ]
    if "features" in config["data"]:
        commands.insert(0, f"caption features -c {path} --out {config['data']['features']}")
    header = HEADER.format(
        data=data, path=path, base=base, commands="\n".join(f"#   {line}" for line in commands)
    )
    with creating(path) as file:
        text = header + yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)
        file.write(text.encode("utf-8", "replace"))
