"""The configuration that a checkpoint carries: enough to evaluate it without naming one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from caption import checkpoint
from caption.cli.configuration.files import OPTIONS, READER, option_pairs
from caption.data.readers.captions import CaptionReader
from caption.data.resize import ImageTransform
from caption.errors import CheckpointError, UserError
from caption.parts import make
from caption.runtime.trust import check_texts
from caption.search import Search

DATA = (
    *(
        "transform",
        "batch_size",
        "captions_per_image",
        "batching",
        "min_count",
        "vocabulary_size",
        "tokenizer",
        "max_words",
    ),
    *("features", "workers", "predict_split"),
)
"""Entries of the data section, beside the reader, that are taken from a checkpoint; none of them names a class."""


def with_checkpoint_configuration(args: Sequence[str]) -> list[str]:
    """A command line of Lightning's; one that evaluates a checkpoint without a configuration gets the checkpoint's own.

    Raises:
        CheckpointError: the checkpoint carries none, or names a class of a package that is not trusted.
    """
    args = list(args)
    pairs = option_pairs(args)
    paths = [value for option, value in pairs if option == "--ckpt_path"]
    in_folder = bool(paths) and paths[-1] in ("auto", "best", "last")  # of the run that a configuration names
    configured = in_folder or any(option in (*OPTIONS, *READER) for option, _ in pairs)
    if args[0] == "fit" or configured or not paths or {"--help", "-h"} & set(args):
        return args
    trust = [value for option, value in pairs if option == "--trust"]
    text = yaml.safe_dump(checkpoint_configuration(Path(paths[-1]), trust), sort_keys=False)
    return [args[0], "--config", text, *args[1:]]


def checkpoint_configuration(path: Path, trust: Iterable[str]) -> dict[str, Any]:
    """The configuration of a checkpoint: its parts, its search, the data that it was trained on, and its folder.

    Every class in it has been checked, because a parser of configurations imports whatever a value names.

    Raises:
        CheckpointError: see `with_checkpoint_configuration`.
    """
    contents = checkpoint.read(path)
    try:
        model = checkpoint.architecture(contents, trust)
        search = contents["captioner"]["search"]
        make(search, Search, trust)  # type: ignore[type-abstract]
        check_texts(search, trust)
        return {
            "trainer": {"default_root_dir": str(path.parent)},
            "model": {**model, "search": search},
            "data": _data(contents.get("data"), trust),
        }
    except (UserError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def _data(section: Any, trust: Iterable[str]) -> dict[str, Any]:
    if not isinstance(section, Mapping) or "reader" not in section:
        raise CheckpointError(
            "it does not say on what data it was trained: give the configuration, with -c YAML"
        )
    reader = section["reader"]
    make(reader, CaptionReader, trust)  # type: ignore[type-abstract]
    check_texts(reader, trust)
    entries = {key: section[key] for key in DATA if section.get(key) is not None}
    if "transform" in entries:  # its parser takes class paths, too
        entries["transform"] = ImageTransform.from_dict(entries["transform"]).to_dict()
    if any(isinstance(value, (dict, list)) for key, value in entries.items() if key != "transform"):
        raise CheckpointError("its section data has entries that are not plain values")
    return {"reader": reader} | entries
