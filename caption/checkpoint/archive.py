"""Checks of a file of `torch.save` before torch reads it: sizes, and the checksum of every record.

The file is a zip archive that is never compressed, with one record per tensor and a CRC-32 of each. torch reads it
without comparing the checksums. It also unpacks compressed records, of any size, and reads the directory of the
archive with code of its own; so the checks refuse whatever another reader could understand differently.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from struct import unpack_from

from caption.errors import CheckpointError

BLOCK = 1 << 20
END = 56 + 20 + 22
"""Bytes after the directory: the end record in 64 bits, its locator, the end record of 32 bits without a comment."""


def check_archive(path: Path) -> None:
    """Check that a file is a whole and undamaged archive as `torch.save` writes it.

    Raises:
        CheckpointError: a checksum is wrong, records are compressed, overlap or repeat, or it is another archive.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            _check_directory(path, archive)
            for record in archive.infolist():
                with archive.open(record) as stream:  # compares the checksum at its end
                    while stream.read(BLOCK):
                        pass
    except CheckpointError:
        raise
    except Exception as error:  # zipfile raises many exception types on damaged files
        raise damaged(path, error) from error


def _check_directory(path: Path, archive: zipfile.ZipFile) -> None:
    records = archive.infolist()
    for record in records:
        if record.compress_type != zipfile.ZIP_STORED or record.compress_size != record.file_size:
            raise CheckpointError(
                f"{path} has the compressed record {record.filename!r}, which could unpack to any size, and was "
                "refused: checkpoints are not compressed"
            )
        # torch takes a record with the attribute of a DOS folder for empty: its weights would be what memory held.
        if record.external_attr & 0x10 or record.is_dir():
            raise damaged(path, f"the record {record.filename!r} is marked as a folder")
    whole = path.stat().st_size
    if sum(record.file_size for record in records) > whole:
        raise damaged(path, "records overlap")
    if len({record.filename.casefold() for record in records}) < len(records):
        raise damaged(path, "a record occurs twice")
    with path.open("rb") as file:
        file.seek(-END, 2)
        end = file.read()
    size, start = unpack_from("<QQ", end, 40)
    signatures = end[:4], end[56:60], end[76:80]
    if (
        signatures != (b"PK\x06\x06", b"PK\x06\x07", b"PK\x05\x06")
        or unpack_from("<Q", end, 64)[0] != whole - END
        or start + size != whole - END
        or start != archive.start_dir
    ):
        raise damaged(path, "it is not an archive of torch.save")


def damaged(path: Path, reason: object) -> CheckpointError:
    """The error of a file that is not what was written."""
    return CheckpointError(
        f"{path} is damaged or not a checkpoint: {reason}; get the file again, or use an earlier checkpoint"
    )
