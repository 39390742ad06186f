"""Loads models by the path of a checkpoint, by the name of an installed model, or by an address of the hub."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.core.errors import UserError, did_you_mean, printable, reported_as

if TYPE_CHECKING:
    from importlib.abc import Traversable

    import torch

    from caption.captioner import Captioner
    from caption.text.vocabulary import Vocabulary


PHOTO_MODEL = "photos"
"""Name of the installed model that `caption describe` uses by default, if the package has it."""
SUFFIXES = (".ckpt", ".safetensors")


def installed_models() -> list[str]:
    """Names of the models that are installed with the package."""
    return sorted(_installed())


def _installed() -> dict[str, Traversable]:
    """The files of the installed models, by name."""
    folder = files("caption") / "models"
    return {Path(file.name).stem: file for file in folder.iterdir() if file.name.endswith(SUFFIXES)}


def model_file(name: str) -> str:
    """The file of an installed model, by its name; any other name is returned unchanged.

    A file of that name takes precedence. A folder, such as the demo's shapes/ or photos/, does not.
    """
    if os.path.isfile(os.path.expanduser(name)) or name not in (installed := _installed()):
        return name
    with as_file(installed[name]) as path:  # it is a file, unless the package is imported from an archive
        return str(path)


def load(
    model: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    trust: Iterable[str] = (),
    accelerate: bool = True,
    **of_transformers: Any,
) -> Captioner:
    """Load a captioner in evaluation mode: from a file, an installed model by its name, or from the hub.

    Args:
        model: path of a checkpoint or a safetensors file; or one of `installed_models()`, over which a file of that
            name takes precedence; or hf://owner/name of the Hugging Face Hub, see `caption.models.hub`.
        device: where to put the captioner; "auto" = a GPU of CUDA if there is one, otherwise the CPU.
        trust: packages whose classes the checkpoint may name, although their modules are not imported yet. Importing a
            module runs its code.
        accelerate: exchange parts of the model for faster forms that compute the same; see `caption.kernels`.
        of_transformers: for models of transformers: `question`, and arguments of `from_pretrained`, such as `dtype`;
            see `caption.models.transformers.loading.load`.

    Raises:
        UserError: there is no such model, the device is not available, or the hub cannot be reached.
        CheckpointError: the file is not a checkpoint, is not safe to load, or cannot be rebuilt.
    """
    if not isinstance(model, (str, os.PathLike)):
        raise UserError(f"{model!r} names no model: give a path, or one of {', '.join(installed_models())}")
    name = os.fspath(model)
    if name.startswith("transformers:"):
        from caption.models.transformers.loading import load

        return load(name, check_device(device), **of_transformers)
    if of_transformers:
        raise UserError(
            f"{', '.join(of_transformers)} is for models of transformers, whose names begin with transformers:, and "
            f"{printable(name)} is another"
        )
    from caption import kernels
    from caption.models import checkpoint

    captioner = checkpoint.load(find(name), check_device(device), trust)
    if accelerate:
        kernels.accelerate(captioner)
    return captioner


def check_device(device: str | torch.device) -> torch.device:
    """The device of a name, see `load`; a UserError if it cannot be used here."""
    import torch

    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        return torch.empty(1, device=device).device
    except (RuntimeError, AssertionError) as error:
        missing = isinstance(error, NotImplementedError)  # its message is a page about operators and backends
        reason = "there is none here" if missing else str(error).partition("\n")[0]
        raise UserError(f"device {device} cannot be used: {reason}; choose cpu, or leave it out") from error


def vocabulary(model: str | os.PathLike[str]) -> Vocabulary:
    """The vocabulary of a model, see `load`; its other parts are not built."""
    from caption.core.errors import CheckpointError, DataError
    from caption.models import checkpoint
    from caption.text.vocabulary import Vocabulary

    file = find(model)
    with reported_as(
        CheckpointError, f"the vocabulary in {file} cannot be used", DataError, KeyError, TypeError
    ):
        return Vocabulary.from_dict(checkpoint.read(file)["captioner"]["vocabulary"])


def find(model: str | os.PathLike[str]) -> str | Path:
    """The file of a model, downloaded if it is on the hub; see `load`. The path of a file need not exist.

    Raises:
        UserError: there is no such model, or the hub cannot be reached.
    """
    name = os.fspath(model)
    if name.startswith("hf://"):
        from caption.models import hub

        return hub.fetch(name)
    if "://" in name:
        raise UserError(
            f"'{name}' is a URL, and only files and hf:// are read. Download it, and name the file."
        )
    if (path := model_file(name)) != name:
        return path
    if not os.path.exists(os.path.expanduser(name)) and Path(name).name == name and "." not in name:
        raise UserError(
            f"there is no checkpoint {name} and no installed model of that name{did_you_mean(name, installed_models())}"
            f"; installed models: {', '.join(installed_models()) or 'none'}"
        )
    return name
