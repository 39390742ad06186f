"""Loads models by the path of a checkpoint, or by the name of a model that is installed with the package."""

from __future__ import annotations

import os
from collections.abc import Iterable
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from caption.errors import UserError, did_you_mean

if TYPE_CHECKING:
    from importlib.abc import Traversable

    import torch

    from caption.captioner import Captioner


SUFFIXES = (".ckpt", ".safetensors")


def installed_models() -> list[str]:
    """Names of the models that are installed with the package."""
    return sorted(_installed())


def _installed() -> dict[str, Traversable]:
    """The files of the installed models, by name."""
    folder = files("caption") / "models"
    if not folder.is_dir():
        return {}
    return {Path(file.name).stem: file for file in folder.iterdir() if file.name.endswith(SUFFIXES)}


def load(
    model: str | os.PathLike[str], device: str | torch.device = "cpu", trust: Iterable[str] = ()
) -> Captioner:
    """Load a captioner from a checkpoint, or an installed model by its name, in evaluation mode.

    Args:
        model: path of a checkpoint, or one of `installed_models()`; a file of that name takes precedence.
        device: where to put the captioner.
        trust: packages whose classes the checkpoint may name, although their modules are not imported yet. Importing a
            module runs its code.

    Raises:
        UserError: neither exists, or the device is not available.
        CheckpointError: the file is not a checkpoint, is not safe to load, or cannot be rebuilt.
    """
    import torch

    from caption import checkpoint

    name = os.fspath(model)
    try:
        where = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"device {device} cannot be used: {reason}") from error
    # A folder of that name, such as the demo's shapes/, does not take precedence over an installed model.
    if not Path(name).expanduser().is_file() and name in (installed := _installed()):
        with as_file(installed[name]) as path:
            return checkpoint.load(path, where, trust)
    if not Path(name).expanduser().exists() and Path(name).name == name and "." not in name:
        raise UserError(
            f"there is no checkpoint {name} and no installed model of that name{did_you_mean(name, installed_models())}"
            f"; installed models: {', '.join(installed_models()) or 'none'}"
        )
    return checkpoint.load(name, where, trust)
