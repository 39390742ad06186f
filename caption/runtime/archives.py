"""Zip archives of tensors and arrays, as `torch.save` and `numpy.savez` write them.

A file from somebody else may not take much more memory than its size.
"""

from __future__ import annotations

import mmap
import re
import zipfile
from pathlib import Path
from struct import unpack_from
from typing import Any

from caption.runtime.inputs import MODEL, open_input

ZIP = b"PK"
END, END_64 = 22, 56 + 20 + 22
"""Bytes after an archive's directory: the end record, and with those in 64 bits and their locator before it."""
SHARED = 4
"""How many times a file's size its tensors may be, for weights that share memory."""
ALLOCATORS = re.compile(rb"c(__builtin__|builtins)\nbytearray\n|c_codecs\nencode\n|ctorch[.\w]*\n\w*Tensor\n")
"""Of what torch calls for a pickle with weights_only=True, what makes an object of any size from a few bytes."""


def load_tensors(path: Path) -> Any:
    """What `torch.save` has written to a file: tensors and plain values.

    Raises:
        ValueError: the file could take much more memory than its size; see also `check_archive`.
        Exception: any, of torch, for a file that is damaged, or holds other objects.
    """
    import torch

    with open_input(path, MODEL) as file:
        is_archive = file.read(2) == ZIP  # torch also reads files that are older than its archives
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if ALLOCATORS.search(data):
                raise ValueError("it calls a function that can take any memory")
    if is_archive:
        check_archive(path)
    contents = torch.load(path, map_location="cpu", weights_only=True)
    _check_memory(contents, path.stat().st_size)
    return contents


def _check_memory(contents: Any, size: int) -> None:
    """Raise a ValueError if tensors are larger than their file: one that is expanded has any size."""
    from torch import Tensor, strided

    seen: set[int] = set()
    total, stack = 0, [contents]
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor):
            if value.layout != strided or value.device.type != "cpu":
                raise ValueError("it has tensors that are sparse, or on another device")
            total += value.nbytes
            if value.nbytes > value.untyped_storage().nbytes() or total > SHARED * size:
                raise ValueError("its tensors have more elements than the file")
        elif isinstance(value, (dict, list, tuple, set)) and id(value) not in seen:
            seen.add(id(value))
            stack += value.values() if isinstance(value, dict) else value


def check_archive(path: Path) -> None:
    """Check that an archive is undamaged and that its contents take no more memory than the file.

    The libraries unpack compressed records of any size, and torch does not compare the checksums.

    Raises:
        ValueError: it is not a zip archive, a record is compressed, marked as a folder, repeated or damaged, records
            overlap, or two programs could find different directories.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
            for record in records:
                if record.compress_type != zipfile.ZIP_STORED or record.compress_size != record.file_size:
                    raise ValueError(f"its compressed record {record.filename!r} could unpack to any size")
                # torch reads nothing for a record marked as a DOS folder: its weights would be what memory held.
                if record.external_attr & 0x10 or record.is_dir():
                    raise ValueError(f"its record {record.filename!r} is marked as a folder")
            if len({record.filename.casefold() for record in records}) < len(records):
                raise ValueError("one of its records occurs twice")
            if sum(record.file_size for record in records) > path.stat().st_size:
                raise ValueError("its records overlap")
            if (name := archive.testzip()) is not None:
                raise ValueError(f"the checksum of its record {name!r} is wrong")
        _check_end(path)
    except ValueError:
        raise
    except Exception as error:  # zipfile raises many types on damaged files
        raise ValueError(str(error)) from error


def _check_end(path: Path) -> None:
    """Check that an archive ends with one directory.

    torch finds the directory with code of its own, and could read another one than `zipfile`, which checked it.
    """
    with open_input(path, MODEL) as file:
        whole = file.seek(0, 2)
        file.seek(max(0, whole - END_64))
        end = file.read().rjust(END_64, b"\0")
    if end[:4] == b"PK\x06\x06" and end[56:60] == b"PK\x06\x07":
        size, start = unpack_from("<QQ", end, 40)
        place, length = unpack_from("<Q", end, 64)[0], END_64
    else:
        size, start = unpack_from("<II", end, END_64 - END + 12)
        place, length = start + size, END
    if end[76:80] != b"PK\x05\x06" or not place == start + size == whole - length:
        raise ValueError("its directory is not at its end")
