"""Checkpoints, files that hold a whole captioner and are read with `weights_only=True`.

The layout is Lightning's, so every file written by training is a model:

    state_dict        tensors; the captioner's under "captioner."
    captioner         format (int), package version, and `Captioner.description()`: encoder, refiner and decoder
                      as class paths with arguments, vocabulary, image transform, search
    ...               in training checkpoints, the entries with which Lightning resumes

Formats, all read by this release:

    1   first release
    2   the baseline of the objective Reinforce is a separate part instead of `baseline_decay` and a buffer
"""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from caption.captioner import Captioner
from caption.data.images import ImageTransform
from caption.decoders.base import Decoder
from caption.encoders.base import Encoder
from caption.encoders.refiners import Refiner
from caption.errors import CheckpointError, UserError
from caption.objectives import Objective
from caption.parts import check_texts, current_paths, make
from caption.search import Search
from caption.text.vocabulary import Vocabulary
from caption.version import package_version

FORMAT = 2
PREFIX = "captioner."


def section(captioner: Captioner) -> dict[str, Any]:
    """The `captioner` entry of a checkpoint."""
    return {"format": FORMAT, "version": package_version(), **captioner.description()}


def save(captioner: Captioner, path: str | Path) -> None:
    """Write a captioner without training state. If writing fails, an existing file of that name is unchanged."""
    state = {PREFIX + name: tensor for name, tensor in captioner.state_dict().items()}
    partial = Path(f"{path}.partial")
    torch.save({"state_dict": state, "captioner": section(captioner)}, partial)
    partial.replace(path)


def read(path: str | Path) -> dict[str, Any]:
    """Read and check a checkpoint, and convert it to the current format.

    Raises:
        CheckpointError: the file is missing, damaged, a pickle, or not a checkpoint of this package.
    """
    path = Path(path).expanduser()
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint {path}")
    if path.is_dir():
        raise CheckpointError(f"{path} is a folder: name the checkpoint file in it")
    if not zipfile.is_zipfile(path):
        raise CheckpointError(
            f"{path} is not a checkpoint of this package: it is damaged, a bare pickle or another kind of file, "
            "and was not loaded"
        )
    try:
        contents = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} holds pickled objects, which could run any code when loaded, or is damaged, and was refused: "
            "checkpoints of this package hold only tensors and plain values"
        ) from error
    except Exception as error:  # torch raises many exception types on damaged files
        raise CheckpointError(f"{path} is damaged or not a checkpoint: {error}") from error
    found = contents.get("captioner") if isinstance(contents, dict) else None
    if not isinstance(found, dict) or "format" not in found or "state_dict" not in contents:
        raise CheckpointError(f"{path} is a PyTorch file, but not a checkpoint of this package")
    if found["format"] not in range(1, FORMAT + 1):
        raise CheckpointError(
            f"{path} has checkpoint format {found['format']}, and this release (format {FORMAT}) cannot read it: "
            f"it was written by version {found.get('version')} of this package, use that version or a newer one"
        )
    upgrade(contents)
    return contents


def upgrade(contents: dict[str, Any]) -> None:
    """Convert the contents of a checkpoint of any earlier format to the current one, in place."""
    for name in ("captioner", "hyper_parameters"):
        if name in contents:
            contents[name] = current_paths(contents[name])
    if contents["captioner"]["format"] == 1:
        state = contents["state_dict"]
        if "objective.baseline" in state:
            state["objective.baseline.value"] = state.pop("objective.baseline")
        objective = contents.get("hyper_parameters", {}).get("objective") or {}
        arguments = objective.get("init_args", {})
        if "baseline_decay" in arguments:
            decay = {"decay": arguments.pop("baseline_decay")}
            arguments["baseline"] = {"class_path": "caption.objectives.MovingAverage", "init_args": decay}
        contents["captioner"]["format"] = 2


def load(path: str | Path, device: str | torch.device = "cpu", trust: Iterable[str] = ()) -> Captioner:
    """Load a captioner from a checkpoint, in evaluation mode.

    Args:
        path: a file written by training or by `save`.
        device: where to put the captioner.
        trust: packages whose classes the checkpoint may name, although their modules are not imported yet.

    Raises:
        CheckpointError: the file is missing, damaged, a pickle, of a newer format, names a class of a package that is
            not trusted, or its parts cannot be constructed.
    """
    contents = read(path)
    try:
        captioner = rebuild(contents["captioner"], trust)
        weights = {
            name.removeprefix(PREFIX): tensor
            for name, tensor in contents["state_dict"].items()
            if name.startswith(PREFIX)
        }
        captioner.load_state_dict(weights)
    except (UserError, KeyError, RuntimeError, AttributeError, TypeError) as error:
        raise CheckpointError(f"the captioner in {path} cannot be rebuilt: {error}") from error
    return captioner.to(device).eval()


def rebuild(description: dict[str, Any], trust: Iterable[str] = ()) -> Captioner:
    """Make a captioner from `Captioner.description()`, with random weights."""
    refiner = description["refiner"]
    return Captioner(
        encoder=make(description["encoder"], Encoder, trust),
        decoder=make(description["decoder"], Decoder, trust),
        vocabulary=Vocabulary.from_dict(description["vocabulary"]),
        transform=ImageTransform.from_dict(description["transform"]),
        search=make(description["search"], Search, trust),  # type: ignore[type-abstract]
        refiner=None if refiner is None else make(refiner, Refiner, trust),
    )


def architecture(contents: dict[str, Any], trust: Iterable[str] = ()) -> dict[str, Any]:
    """The specs with which training or evaluation goes on: `encoder`, `refiner`, `decoder`, and `objective` if there is
    one. All else that the hyper-parameters of a training checkpoint may hold is left out.

    The parts are made once, without memory for their weights, and give their own classes and arguments. So a parser of
    configurations, which imports whatever a value names, finds nothing in them that has not been checked.

    Args:
        contents: from `read`.
        trust: see `load`.

    Raises:
        CheckpointError: a part is missing, names a class of a package that is not trusted, or cannot be constructed.
    """
    described = contents["captioner"]
    hyper_parameters = contents.get("hyper_parameters")
    objective = hyper_parameters.get("objective") if isinstance(hyper_parameters, dict) else None
    found: dict[str, Any] = {"refiner": None}
    with torch.device("meta"):
        for name, kind in (("encoder", Encoder), ("refiner", Refiner), ("decoder", Decoder)):
            if name not in described:
                raise CheckpointError(f"the checkpoint does not say which {name} it has")
            if name != "refiner" or described[name] is not None:
                found[name] = make(described[name], kind, trust).spec
        if objective is not None:
            found["objective"] = make(objective, Objective, trust).spec
    check_texts(found, trust)
    return found
