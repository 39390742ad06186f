"""Archives are read only if they are whole and not compressed."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from caption.core.errors import CheckpointError
from caption.core.runtime.safe_loading import check_archive
from caption.encoders.weights import read_state


@pytest.fixture(params=["torch", "numpy"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """An archive with the matrix of 1."""
    path = tmp_path / "archive.npz"
    if request.param == "torch":
        torch.save({"weight": torch.ones(30, 40, dtype=torch.float64)}, path)
    else:
        np.savez(path, weight=np.ones((30, 40)))
    return path


def rezip(path: Path, compression: int = zipfile.ZIP_STORED) -> None:
    """Write the records of an archive by Python's zipfile."""
    with zipfile.ZipFile(path) as archive:
        records = [(name, archive.read(name)) for name in archive.namelist()]
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in records:
            archive.writestr(name, content)


def test_compressed_records_are_not_unpacked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rezip(path, zipfile.ZIP_DEFLATED)
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("a record was unpacked"))
    with pytest.raises(ValueError, match=r"compressed record .* could unpack to any size"):
        check_archive(path)


def test_a_flipped_bit_does_not_leave_weights_unread(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        name, directory = archive.infolist()[-1].filename.encode(), archive.start_dir
    content = bytearray(path.read_bytes())
    content[content.rindex(name, directory) - 8] |= 0x10  # the attribute of a folder
    path.write_bytes(content)
    with pytest.raises(ValueError, match="marked as a folder"):
        check_archive(path)


def test_what_is_whole_is_accepted_and_a_flipped_bit_is_noticed(path: Path) -> None:
    check_archive(path)
    rezip(path)
    check_archive(path)
    content = bytearray(path.read_bytes())
    content[content.index(b"\xf0\x3f")] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="checksum"):
        check_archive(path)


def test_weights_of_encoders_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    for legacy in (True, False):
        torch.save({"weight": torch.ones(30, 40)}, path, _use_new_zipfile_serialization=not legacy)
        assert read_state(path)["weight"].shape == (30, 40)
    path.write_bytes(path.read_bytes().replace(b"PK\x01\x02", b"PK\x01\x03"))  # the directory
    with pytest.raises(CheckpointError, match=r"weights.pth was refused"):
        read_state(path)
