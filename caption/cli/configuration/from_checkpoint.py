"""The configuration in a checkpoint, which is enough to evaluate it on the user's data.

A checkpoint may come from a stranger. It decides the model, and how captions and pixels are made. The user decides
which files are read, and with how many processes.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from caption.cli.configuration.config_files import OPTIONS, READER, option_pairs
from caption.core.errors import CheckpointError, UserError, reported_as
from caption.core.runtime.trust import check_texts, make
from caption.data.photos import ImageTransform
from caption.models import checkpoint
from caption.models.model_zoo import model_file
from caption.search import Search

DATA = ("transform", "batch_size", "min_count", "tokenizer", "predict_split")
"""Entries of the data section that are taken from a checkpoint; none of them names a class or a file."""
LARGEST_BATCH = 64
"""Limit of the images in a batch, the default without a checkpoint: a file must not decide how much memory is used."""


def with_checkpoint_configuration(args: Sequence[str]) -> list[str]:
    """A command line for Lightning. If it evaluates a checkpoint without a configuration, the checkpoint's is added.

    Raises:
        CheckpointError: the checkpoint names a class of a package that is not trusted.
        UserError: the command does not name data.
    """
    args = list(args)
    pairs = option_pairs(args)
    paths = [value for option, value in pairs if option == "--ckpt_path"]
    in_folder = bool(paths) and paths[-1] in ("auto", "best", "last")  # of the run that a configuration names
    configured = in_folder or any(option in OPTIONS for option, _ in pairs)
    if args[0] == "fit" or configured or not paths or {"--help", "-h"} & set(args):
        return args
    path = Path(model_file(paths[-1]))
    contents = checkpoint.read(path)
    if not any(option in READER for option, _ in pairs):
        raise UserError(
            f"{path} does not decide which data is read: give the configuration, with -c YAML, or the data, with "
            f"--data.reader CLASS{_trained_on(contents)}"
        )
    trust = [value for option, value in pairs if option == "--trust"]
    text = yaml.safe_dump(checkpoint_configuration(path, contents, trust), sort_keys=False)
    return [args[0], "--config", text, *args[1:]]


def checkpoint_configuration(path: Path, contents: dict[str, Any], trust: Iterable[str]) -> dict[str, Any]:
    """The configuration of a checkpoint: its parts, its search, how its data was prepared, and its folder.

    Every class in it has been checked, because a parser of configurations imports whatever a value names.

    Raises:
        CheckpointError: see `with_checkpoint_configuration`.
    """
    with reported_as(CheckpointError, str(path), UserError, KeyError, TypeError):
        model = checkpoint.architecture(contents, trust)
        search = contents["captioner"]["search"]
        make(search, Search, trust)  # type: ignore[type-abstract]
        check_texts(search, trust)
        return {
            "trainer": {"default_root_dir": str(path.parent)},
            "model": {**model, "search": search},
            "data": _data(contents.get("data")),
        }


def _data(section: Any) -> dict[str, Any]:
    if not isinstance(section, Mapping):
        return {}
    entries = {key: section[key] for key in DATA if section.get(key) is not None}
    if "transform" in entries:  # its parser takes class paths, too
        entries["transform"] = ImageTransform.from_dict(entries["transform"]).to_dict()
    if any(isinstance(value, (dict, list)) for key, value in entries.items() if key != "transform"):
        raise CheckpointError("its section data has entries that are not plain values")
    return entries | {"batch_size": min(entries.get("batch_size", LARGEST_BATCH), LARGEST_BATCH)}


def _trained_on(contents: Mapping[str, Any]) -> str:
    """The end of a message: the options that name the data of the training, if the checkpoint has them."""
    section = contents.get("data")
    reader = section.get("reader") if isinstance(section, Mapping) else None
    if not isinstance(reader, Mapping) or not isinstance(reader.get("init_args", {}), Mapping):
        return ""
    options = {"": reader.get("class_path"), **reader.get("init_args", {})}
    words = []
    for name, value in options.items():
        if value is not None:
            words.append(f"--data.reader{name and f'.init_args.{name}'}")
            words.append(value if isinstance(value, str) else json.dumps(value))
    return f". The checkpoint was trained with {shlex.join(words)}"
