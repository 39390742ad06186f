"""Checkpoint files: written, read and checked."""

from __future__ import annotations

import json
import os
import pickle
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
import torch
from torch import Tensor

from caption.captioner import Captioner
from caption.core.errors import CheckpointError, UserError, first_few, printable, reported_as
from caption.core.runtime.atomic_files import Opener, replacing
from caption.core.runtime.inputs import MODEL, open_input
from caption.core.runtime.safe_loading import check_plain, load_safetensors, load_tensors
from caption.core.version import package_version

FORMAT = 2
"""Number of the layout of checkpoints; no release wrote another one."""
IMPORT_HINT = "`caption import --help` says which models of other code can be read"
PREFIX = "captioner."
TENSOR_SUFFIX = ".safetensors"
Precision = Literal["float32", "float16", "bfloat16"]


def section(captioner: Captioner) -> dict[str, Any]:
    """The `captioner` entry of a checkpoint."""
    return {"format": FORMAT, "version": package_version(), **captioner.description()}


def save(
    captioner: Captioner, path: str | Path, precision: Precision | None = None, opener: Opener = replacing
) -> None:
    """Write a captioner without training state. If writing fails, an existing file of that name is unchanged.

    Args:
        captioner: the model.
        path: a safetensors file if it ends in .safetensors, otherwise a checkpoint as training writes it.
        precision: of the matrices and kernels in the file. Vectors, such as biases and the statistics of BatchNorm,
            keep theirs: they are small, and a variance may be out of range. None = the captioner's own.
        opener: decides which existing file may be replaced, see `caption.core.runtime.atomic_files`; by default any.

    Raises:
        UserError: a weight is out of the range of that precision, or the file cannot be written.
    """
    state = {name: _in_precision(name, tensor, precision) for name, tensor in captioner.state_dict().items()}
    with opener(path) as file:
        if Path(path).suffix.lower() == TENSOR_SUFFIX:
            file.write(to_safetensors(state, section(captioner)))
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


def to_safetensors(state: Mapping[str, Tensor], section: dict[str, Any], name: str = "captioner") -> bytes:
    """Tensors and their description, the section `name`, as a safetensors file with checksums of all."""
    text = json.dumps(section)
    # Copies, because the format has no tensors that share memory.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
    header = {"format": "pt", name: text, "checksums": json.dumps(_checksums(name, text, tensors))}
    return safetensors.torch.save(tensors, header)


def _checksums(name: str, section: str, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """CRC-32 of the section `name`, and of the name, type, shape and bytes of each tensor."""
    sums = {}
    for key, tensor in tensors.items():
        kind = zlib.crc32(f"{key} {tensor.dtype} {tuple(tensor.shape)}".encode())
        sums[key] = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, kind)
    return {name: zlib.crc32(section.encode()), "tensors": sums}


def read(path: str | Path) -> dict[str, Any]:
    """Read and check a checkpoint or a safetensors file.

    Memory is bounded by the size of the file: nothing in it is compressed.

    Returns:
        `state_dict` and `captioner`, see the docstring of this package, and the other entries of a training checkpoint.

    Raises:
        CheckpointError: the file is missing, damaged, a pickle, or not a checkpoint of this package.
    """
    path = Path(os.path.expanduser(path))
    start = _first_bytes(path)
    try:
        if start[8:9] == b"{":
            section, tensors = read_safetensors(path)
            state = {PREFIX + name: tensor for name, tensor in tensors.items()}
            contents = {"state_dict": state, "captioner": section}
        elif start[:2] == b"PK":
            contents = _read_archive(path)
        else:
            raise CheckpointError(
                f"{path} is not a checkpoint of this package: it is damaged, a bare pickle or another kind of file, "
                "and was not loaded"
            )
    except CheckpointError:
        raise
    except Exception as error:  # the libraries raise many exception types on damaged files
        raise CheckpointError(
            f"{path} is damaged or not a checkpoint: {error}; get the file again, or use an earlier checkpoint"
        ) from error
    _check_contents(path, contents)
    return contents


def _first_bytes(path: Path) -> bytes:
    if not os.path.lexists(path):
        raise CheckpointError(f"there is no checkpoint {printable(path)}")
    with open_input(path, MODEL) as file:
        return file.read(16)


def read_safetensors(path: Path, name: str = "captioner") -> tuple[Any, dict[str, Tensor]]:
    """The section and the tensors of a file from `to_safetensors`.

    Raises:
        CheckpointError: it is another safetensors file.
        Exception: any, of safetensors and JSON, for a file that is damaged or of another kind.
    """
    header, tensors = load_safetensors(path)
    if not {name, "checksums"} <= set(header):
        raise CheckpointError(
            f"{path} is a safetensors file, but not a {name} of this package: its header has no description"
        )
    if json.loads(header["checksums"]) != _checksums(name, header[name], tensors):
        raise ValueError("a checksum is wrong")
    return json.loads(header[name]), tensors


def _read_archive(path: Path) -> Any:
    try:
        return load_tensors(path)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path} holds pickled objects, which could run any code when loaded, or is damaged, and was refused: "
            f"checkpoints of this package hold only tensors and plain values; {IMPORT_HINT}"
        ) from error


def _check_contents(path: Path, contents: Any) -> None:
    captioner = contents.get("captioner") if isinstance(contents, dict) else None
    if not isinstance(captioner, dict) or "format" not in captioner or "state_dict" not in contents:
        names = (
            [repr(name) for name in contents if isinstance(name, str)] if isinstance(contents, dict) else []
        )
        raise CheckpointError(
            f"{path} is a PyTorch file, but not a checkpoint of this package: it holds "
            f"{first_few(names) or 'other values'}; {IMPORT_HINT}"
        )
    with reported_as(CheckpointError, f"{path} was refused", CheckpointError):
        for name in ("captioner", "hyper_parameters", "data"):
            check_plain(contents.get(name))
        if captioner["format"] != FORMAT:
            raise CheckpointError(
                f"it has checkpoint format {captioner['format']}, and this release reads format {FORMAT}: use version "
                f"{captioner.get('version')} of this package, which wrote it"
            )
        _check_tensors(contents["state_dict"])


def _check_tensors(state: Any) -> None:
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise CheckpointError("its state_dict is not a dictionary of tensors")
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise CheckpointError(f"{name[:100]!r} is not a tensor")
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise CheckpointError(
                f"{name[:100]} holds NaN or infinity: the training that wrote it had diverged, take an earlier "
                "checkpoint"
            )
