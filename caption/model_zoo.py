"""Models by the path of their checkpoint, or by name: those that come with the package."""

from __future__ import annotations

import os
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from caption.errors import UserError

if TYPE_CHECKING:
    import torch

    from caption.captioner import Captioner


def installed_models() -> list[str]:
    """Names of the models that come with the package."""
    folder = files("caption") / "models"
    if not folder.is_dir():
        return []
    return sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".ckpt"))


def load(model: str | os.PathLike[str], device: str | torch.device = "cpu") -> Captioner:
    """The captioner in a checkpoint, or the installed one of that name, in evaluation mode.

    Args:
        model: path of a checkpoint, or one of `installed_models()`; a file of that name goes first.
        device: where to put it.

    Raises:
        UserError: neither exists, or there is no such device.
        CheckpointError: the file is no checkpoint that can be trusted and rebuilt.
    """
    import torch

    from caption import checkpoint

    name = os.fspath(model)
    try:
        where = torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UserError(f"there is no device {device} here: {reason}") from error
    # A folder of that name, such as the demo's shapes/, is no checkpoint and hides nothing.
    if not Path(name).expanduser().is_file() and name in installed_models():
        with as_file(files("caption") / "models" / f"{name}.ckpt") as path:
            return checkpoint.load(path, where)
    if not Path(name).expanduser().exists() and Path(name).name == name and "." not in name:
        raise UserError(
            f"there is no checkpoint {name} and no installed model of that name: installed are "
            f"{', '.join(installed_models()) or 'none'}"
        )
    return checkpoint.load(name, where)
