"""Zip archives are read only if they are whole, and no larger in memory than in the file."""

from __future__ import annotations

import codecs
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def rezip(path: Path, compression: int = zipfile.ZIP_STORED, again: str = "") -> None:
    """Write the records of an archive by Python's zipfile, the first one also under another name."""
    with zipfile.ZipFile(path) as archive:
        records = [(name, archive.read(name)) for name in archive.namelist()]
    if again:
        records.append((getattr(records[0][0], again)(), records[0][1]))
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in records:
            archive.writestr(name, content)


def change(path: Path, offset: int, value: int) -> None:
    """Set a bit of the last record's entry in the directory, counted from its name."""
    with zipfile.ZipFile(path) as archive:
        name, directory = archive.infolist()[-1].filename.encode(), archive.start_dir
    content = bytearray(path.read_bytes())
    content[content.rindex(name, directory) + offset] |= value
    path.write_bytes(content)


def enlarge(path: Path) -> None:
    """Let the last record's entry in the directory claim 16 MB."""
    change(path, 20 - 46 + 3, 1)
    change(path, 24 - 46 + 3, 1)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (lambda path: rezip(path, zipfile.ZIP_DEFLATED), "compressed record .* could unpack to any size"),
        (lambda path: rezip(path, again="lower"), "occurs twice"),
        (lambda path: rezip(path, again="upper"), "occurs twice"),
        # torch reads nothing for a folder, so its weights would be what the memory held before.
        (lambda path: change(path, 38 - 46, 0x10), "marked as a folder"),
        (enlarge, "overlap"),
    ],
    ids=["compressed", "repeated", "repeated in capitals", "folder", "larger than the file"],
)
def test_archives_that_are_refused_before_anything_is_unpacked(
    fault: Callable[[Path], None], said: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(path)
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("a record was unpacked"))
    with pytest.raises(ValueError, match=said):
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


class Large:
    """Pickles as a call that makes 4 GB."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize(
    "large",
    [
        torch.zeros(1).expand(10**9),
        Large(bytearray, 4 * 10**9),
        Large(torch.FloatTensor, 10**9),
        Large(codecs.encode, b"x", "hex"),
    ],
    ids=["expanded", "bytes", "tensor", "encoded"],
)
def test_what_would_take_far_more_memory_than_the_file_is_refused(
    large: Any, legacy: bool, tmp_path: Path
) -> None:
    path = tmp_path / "weights.pth"
    torch.save({"weight": large}, path, _use_new_zipfile_serialization=not legacy)
    assert path.stat().st_size < 10_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CheckpointError, match=r"weights\.pth was refused: it"):
        read_state(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 100_000  # KB


def test_weights_of_encoders_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    for legacy in (True, False):
        torch.save({"weight": torch.ones(30, 40)}, path, _use_new_zipfile_serialization=not legacy)
        assert read_state(path)["weight"].shape == (30, 40)
    path.write_bytes(path.read_bytes().replace(b"PK\x01\x02", b"PK\x01\x03"))  # the directory
    with pytest.raises(CheckpointError, match=r"weights.pth was refused"):
        read_state(path)
