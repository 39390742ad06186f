"""Checkpoint files: written, read and checked."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from caption.captioner import Captioner
from caption.checkpoint.archive import check_archive, damaged
from caption.checkpoint.plain import check_plain
from caption.checkpoint.tensor_file import read_tensors, write_tensors
from caption.errors import CheckpointError, UserError
from caption.runtime.atomic import replacing
from caption.version import package_version

FORMAT = 2
"""Number of the layout of checkpoints; no release wrote another one."""
PREFIX = "captioner."
TENSOR_SUFFIX = ".safetensors"
Precision = Literal["float32", "float16", "bfloat16"]


def section(captioner: Captioner) -> dict[str, Any]:
    """The `captioner` entry of a checkpoint."""
    return {"format": FORMAT, "version": package_version(), **captioner.description()}


def save(captioner: Captioner, path: str | Path, precision: Precision | None = None) -> None:
    """Write a captioner without training state. If writing fails, an existing file of that name is unchanged.

    Args:
        captioner: the model.
        path: a safetensors file if it ends in .safetensors, otherwise a checkpoint as training writes it.
        precision: of the matrices and kernels in the file. Vectors, such as biases and the statistics of BatchNorm,
            keep theirs: they are small, and a variance does not fit into every range. None = the captioner's own.

    Raises:
        UserError: a weight is out of the range of that precision, or the file cannot be written.
    """
    state = {name: _in_precision(name, tensor, precision) for name, tensor in captioner.state_dict().items()}
    with replacing(path) as file:
        if Path(path).suffix == TENSOR_SUFFIX:
            write_tensors(state, section(captioner), file)
        else:
            prefixed = {PREFIX + name: tensor for name, tensor in state.items()}
            torch.save({"state_dict": prefixed, "captioner": section(captioner)}, file)


def _in_precision(name: str, tensor: Tensor, precision: Precision | None) -> Tensor:
    if precision is None or tensor.ndim < 2 or not tensor.is_floating_point():
        return tensor
    converted = tensor.to(getattr(torch, precision))
    if converted.isfinite().sum() < tensor.isfinite().sum():
        raise UserError(f"the weights {name} do not fit into {precision}: choose bfloat16 or float32")
    return converted


def read(path: str | Path) -> dict[str, Any]:
    """Read and check a checkpoint or a safetensors file.

    Memory is bounded by the size of the file: nothing in it is compressed.

    Returns:
        `state_dict` and `captioner`, as the package's docstring says, and what else a training checkpoint has.

    Raises:
        CheckpointError: the file is missing, damaged, a pickle, or not a checkpoint of this package.
    """
    path = Path(path).expanduser()
    start = _start(path)
    if start[8:9] == b"{":
        tensors, found = read_tensors(path)
        contents: Any = {"state_dict": {PREFIX + name: t for name, t in tensors.items()}, "captioner": found}
    else:
        contents = _read_archive(path, start)
    _check_layout(path, contents)
    return contents


def _start(path: Path) -> bytes:
    """The first bytes of a file; a CheckpointError if there is no file."""
    try:
        if path.is_dir():
            raise CheckpointError(f"{path} is a folder: name the checkpoint file in it")
        if path.exists() and not path.is_file():
            raise CheckpointError(f"{path} is not a file, but a device or a pipe")
        with path.open("rb") as file:
            return file.read(16)
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except (OSError, ValueError) as error:  # a name too long, with a null byte, or that is not Unicode
        name = ascii(str(path))[:100]
        raise CheckpointError(f"the checkpoint {name} cannot be read: {error}"[:300]) from error


def _read_archive(path: Path, start: bytes) -> Any:
    if start[:2] != b"PK":
        raise CheckpointError(
            f"{path} is not a checkpoint of this package: it is damaged, a bare pickle or another kind of file, "
            "and was not loaded"
        )
    check_archive(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} holds pickled objects, which could run any code when loaded, or is damaged, and was refused: "
            "checkpoints of this package hold only tensors and plain values"
        ) from error
    except Exception as error:  # torch raises many exception types on damaged files
        raise damaged(path, error) from error


def _check_layout(path: Path, contents: Any) -> None:
    found = contents.get("captioner") if isinstance(contents, dict) else None
    if not isinstance(found, dict) or "format" not in found or "state_dict" not in contents:
        raise CheckpointError(f"{path} is a PyTorch file, but not a checkpoint of this package")
    try:
        check_plain(found)
        check_plain(contents.get("hyper_parameters"))
        check_plain(contents.get("data"))
    except CheckpointError as error:
        raise CheckpointError(f"{path} was refused: {error}") from error
    if found["format"] != FORMAT:
        raise CheckpointError(
            f"{path} has checkpoint format {found['format']}, and this release reads format {FORMAT}: "
            f"it was written by version {found.get('version')} of this package, use that version"
        )
    state, size = contents["state_dict"], path.stat().st_size
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise CheckpointError(f"{path} was refused: its state_dict is not a dictionary of tensors")
    _check_tensors(path, state, size)


SHARED = 4
"""How many times a file's size its tensors may be, for weights that share memory."""


def _check_tensors(path: Path, state: dict[str, Any], size: int) -> None:
    total = 0
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor) or tensor.layout != torch.strided or tensor.device.type != "cpu":
            raise CheckpointError(f"{path} was refused: {name[:100]!r} is not a plain tensor")
        # An expanded tensor has any number of elements on one number in the file.
        total += tensor.nbytes
        if tensor.nbytes > tensor.untyped_storage().nbytes() or total > SHARED * size:
            raise CheckpointError(f"{path} was refused: {name[:100]!r} has more elements than the file")
