"""Loading untrusted files without running code: tensors and plain values.

Checkpoints, weights, lenses and stores are read with these functions. The classes that a file may name are defined in
`caption.core.runtime.trust`; `caption.models.checkpoint` compares the shapes of a model's weights.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from caption.core.errors import CheckpointError
from caption.core.runtime.inputs import MODEL, Kind, open_input

if TYPE_CHECKING:
    from torch import Tensor

ZIP = b"PK"
SHARED = 4
"""Maximal size of a file's tensors as a multiple of the file's size, for weights that share memory."""


def load_tensors(path: Path) -> Any:
    """The content of a file of `torch.save`: tensors and plain values.

    Raises:
        ValueError: its tensors are larger than the file; see also `check_archive`.
        Exception: of any type, from torch, if the file is damaged or contains other objects.
    """
    import torch

    with open_input(path, MODEL) as file:
        is_archive = file.read(2) == ZIP  # torch also reads its format from before zip archives
    if is_archive:
        check_archive(path)
    contents = torch.load(path, map_location="cpu", weights_only=True)
    _check_memory(contents, path.stat().st_size)
    return contents


def _check_memory(contents: Any, size: int) -> None:
    """Raise a ValueError if tensors are larger than their file: an expanded tensor can have any size."""
    from torch import Tensor, strided

    visited: set[int] = set()
    total, stack = 0, [contents]
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor):
            if value.layout != strided or value.device.type != "cpu":
                raise ValueError("it has tensors that are sparse, or on another device")
            total += value.nbytes
            if value.nbytes > value.untyped_storage().nbytes() or total > SHARED * size:
                raise ValueError("its tensors have more elements than the file")
        elif isinstance(value, (dict, list, tuple, set)) and id(value) not in visited:
            visited.add(id(value))
            stack += value.values() if isinstance(value, dict) else value


def load_safetensors(path: Path, kind: Kind = MODEL) -> tuple[dict[str, str], dict[str, Tensor]]:
    """The texts in the header of a safetensors file, and its tensors, which share the mapped file.

    Raises:
        UserError: of the kind; the file cannot be opened.
        Exception: of any type, from safetensors, if the file is damaged or in another format.
    """
    import safetensors

    open_input(path, kind).close()
    with safetensors.safe_open(path, "pt") as file:
        return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no iterator)


def check_archive(path: Path) -> None:
    """Compare the records of a zip archive with their checksums, which torch does not do.

    Raises:
        ValueError: it is not a zip archive; a record is damaged, marked as a folder, or compressed, in which case it
            could unpack to any size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            for record in archive.infolist():
                if record.compress_type != zipfile.ZIP_STORED:
                    raise ValueError(f"its compressed record {record.filename!r} could unpack to any size")
                if record.external_attr & 0x10:  # torch does not read it: the weights would be uninitialised
                    raise ValueError(f"its record {record.filename!r} is marked as a folder")
            if (name := archive.testzip()) is not None:
                raise ValueError(f"the checksum of its record {name!r} is wrong")
    except ValueError:
        raise
    except Exception as error:  # zipfile raises many types on damaged files
        raise ValueError(str(error)) from error


# -- descriptions ----------------------------------------------------------------------------------------------

ENTRIES = 3_000_000
"""Maximal number of entries, many times that of the largest vocabulary."""
DEPTH = 100
LARGEST = 2**63
"""Bound of whole numbers; the largest are seeds."""


def check_plain(value: Any, largest: int = LARGEST) -> None:
    """Check that a value consists of dicts with text as keys, lists, text, numbers, booleans and None.

    This must be checked before other code iterates over it: a few bytes of a pickle can describe lists that are nested
    thousands of times, or that contain each other and have more entries than fit into memory.

    Args:
        value: the description, or a part of it.
        largest: whole numbers must be smaller.

    Raises:
        CheckpointError: it contains another type or text that is not Unicode, or is too large or too deeply nested.
    """
    stack = [(value, 0)]
    visited = 0
    while stack:
        entry, depth = stack.pop()
        visited += 1
        children: list[Any] = []
        if isinstance(entry, dict):
            if not all(isinstance(key, str) for key in entry):
                raise CheckpointError("it has keys that are not text")
            children = [*entry, *entry.values()]
        elif isinstance(entry, (list, tuple)):
            children = [*entry]
        else:
            _check_value(entry, largest)
        if depth > DEPTH or visited + len(stack) + len(children) > ENTRIES:
            raise CheckpointError("it is larger or more deeply nested than any model's description")
        stack += [(child, depth + 1) for child in children]


def _check_value(value: Any, largest: int) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise CheckpointError(f"it has text that is not Unicode, {value[:50]!a}") from None
    elif isinstance(value, int):
        if abs(value) >= largest:
            raise CheckpointError(f"it has a whole number of {largest} or more")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise CheckpointError(f"it has the number {value}")
    elif value is not None:
        raise CheckpointError(f"it has a {type(value).__name__}, not a plain value")
