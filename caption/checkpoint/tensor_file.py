"""A captioner as one safetensors file: tensors, and in its header the description and a checksum of each.

The header's entries, all text:

    captioner   the `captioner` section of a checkpoint, in JSON
    checksums   JSON: "captioner", and for each tensor in "tensors", the CRC-32 of its name, type, shape and bytes
    format      "pt", as other programs expect
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from caption.checkpoint.archive import damaged
from caption.errors import CheckpointError


def write_tensors(state: Mapping[str, Tensor], section: dict[str, Any], file: BinaryIO) -> None:
    """Write the tensors of a captioner and the `captioner` section of its checkpoint."""
    text = json.dumps(section)
    # Copies, because the format has no tensors that share memory.
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in state.items()}
    sums = {
        "captioner": _crc(text.encode()),
        "tensors": {name: _checksum(name, t) for name, t in tensors.items()},
    }
    file.write(save(tensors, {"format": "pt", "captioner": text, "checksums": json.dumps(sums)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], Any]:
    """The tensors, and the `captioner` section.

    Raises:
        CheckpointError: the file is damaged, or has no description of a captioner.
    """
    try:
        with safe_open(path, "pt") as file:
            header = file.metadata() or {}
            if not {"captioner", "checksums"} <= set(header):
                raise CheckpointError(
                    f"{path} is a safetensors file, but not a model of this package: its header has no description"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no iterator)
        sums = json.loads(header["checksums"])
        found = {name: _checksum(name, tensor) for name, tensor in tensors.items()}
        if sums["tensors"] != found or sums["captioner"] != _crc(header["captioner"].encode()):
            raise damaged(path, "a checksum is wrong")
        return tensors, json.loads(header["captioner"])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise damaged(path, error) from error


def _checksum(name: str, tensor: Tensor) -> int:
    kind = f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode()
    return _crc(tensor.reshape(-1).view(torch.uint8).numpy(), _crc(kind))


def _crc(content: Any, before: int = 0) -> int:
    return zlib.crc32(content, before)
