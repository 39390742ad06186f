"""The measurement of memory over many photos."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import many_photos

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_every_photo_is_captioned_and_memory_is_read_ten_times(capsys):
    assert many_photos.main(["--photos", "20", "--size", "48"]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head == "| photos | seconds | memory |"
    assert [row.split("|")[1].strip() for row in rows] == [str(2 * tenth) for tenth in range(1, 11)]
    assert all(50 < float(row.split("|")[3].split()[0].replace(",", "")) < 5000 for row in rows)


def test_a_missing_photo_is_noticed(tmp_path: Path):
    many_photos.make_photos(tmp_path, 3, 48)
    (tmp_path / "000001.jpg").write_bytes(b"no photo")
    with pytest.raises(RuntimeError, match="photo 1 is missing"):
        many_photos.measure(tmp_path, 3, "shapes")
