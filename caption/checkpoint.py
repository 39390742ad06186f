"""Checkpoints: one file that makes a captioner again, read with `weights_only=True`.

The layout is Lightning's, so that a file written in training is a model as it stands:

    state_dict        tensors; the captioner's under "captioner."
    captioner         format (int), package version, and `Captioner.description()`: encoder, refiner and decoder
                      as class paths with arguments, vocabulary, image transform, search
    ...               in training checkpoints, what Lightning needs to resume
"""

from __future__ import annotations

import pickle
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from caption.captioner import Captioner
from caption.checkpoint_formats import FORMAT, upgrade
from caption.data.images import ImageTransform
from caption.decoders.base import Decoder
from caption.encoders.base import Encoder
from caption.encoders.refiners import Refiner
from caption.errors import CheckpointError, UserError
from caption.parts import make
from caption.search import Search
from caption.text.vocabulary import Vocabulary

PREFIX = "captioner."


def package_version() -> str:
    """Version of the installed package."""
    return metadata.version("show-attend-and-tell")


def section(captioner: Captioner) -> dict[str, Any]:
    """The `captioner` entry of a checkpoint."""
    return {"format": FORMAT, "version": package_version(), **captioner.description()}


def save(captioner: Captioner, path: str | Path) -> None:
    """Write a captioner, without any training state. The file appears whole or not at all."""
    state = {PREFIX + name: tensor for name, tensor in captioner.state_dict().items()}
    partial = Path(f"{path}.partial")
    torch.save({"state_dict": state, "captioner": section(captioner)}, partial)
    partial.replace(path)


def read(path: str | Path) -> dict[str, Any]:
    """The contents of a checkpoint, checked to be one of this package's and brought up to the present format.

    Raises:
        CheckpointError: missing, damaged, a pickle, or something else.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint {path}")
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder: name the checkpoint file in it")
    if not zipfile.is_zipfile(path):
        raise CheckpointError(
            f"{path} is no checkpoint of this package: it is damaged, a bare pickle or something else, "
            "and was not loaded"
        )
    try:
        contents = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} holds pickled objects, which could run any code when loaded, or is damaged, and was refused: a "
            "checkpoint of this package holds tensors and plain values only"
        ) from error
    except Exception as error:  # at damage, torch raises whatever its unpickler stumbles over
        raise CheckpointError(f"{path} is damaged or no checkpoint: {error}") from error
    found = contents.get("captioner") if isinstance(contents, dict) else None
    if not isinstance(found, dict) or "format" not in found or "state_dict" not in contents:
        raise CheckpointError(f"{path} is a PyTorch file, but no checkpoint of this package")
    if found["format"] not in range(1, FORMAT + 1):
        raise CheckpointError(
            f"{path} has checkpoint format {found['format']}, and this release (format {FORMAT}) cannot read it: "
            f"it was written by version {found.get('version')} of this package, use that or a newer one"
        )
    upgrade(contents)
    return contents


def load(path: str | Path, device: str | torch.device = "cpu") -> Captioner:
    """Make the captioner that a checkpoint describes, in evaluation mode.

    Args:
        path: a file written by training or by `save`.
        device: where to put it.

    Raises:
        CheckpointError: the file is missing, damaged, a pickle, of another format, or its parts cannot be made.
    """
    contents = read(path)
    try:
        captioner = rebuild(contents["captioner"])
        weights = {
            name.removeprefix(PREFIX): tensor
            for name, tensor in contents["state_dict"].items()
            if name.startswith(PREFIX)
        }
        captioner.load_state_dict(weights)
    except (UserError, KeyError, RuntimeError, AttributeError, TypeError) as error:
        raise CheckpointError(f"the captioner in {path} cannot be made again: {error}") from error
    return captioner.to(device).eval()


def rebuild(description: dict[str, Any]) -> Captioner:
    """A captioner from `Captioner.description()`, with weights yet to be loaded."""
    return Captioner(
        encoder=make(description["encoder"], Encoder),
        decoder=make(description["decoder"], Decoder),
        vocabulary=Vocabulary.from_dict(description["vocabulary"]),
        transform=ImageTransform.from_dict(description["transform"]),
        search=make(description["search"], Search),  # type: ignore[type-abstract]
        refiner=None if description["refiner"] is None else make(description["refiner"], Refiner),
    )
