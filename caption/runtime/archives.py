"""Zip archives of tensors and arrays, as `torch.save` and `numpy.savez` write them."""

from __future__ import annotations

import zipfile
from pathlib import Path


def check_archive(path: Path) -> None:
    """Check that an archive is undamaged and that its contents take no more memory than the file.

    The libraries unpack compressed records of any size, and torch does not compare the checksums.

    Raises:
        ValueError: it is not a zip archive, a record is compressed, marked as a folder, repeated or damaged, or records
            overlap.
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
    except ValueError:
        raise
    except Exception as error:  # zipfile raises many types on damaged files
        raise ValueError(str(error)) from error
