"""The tool that streams generated shards."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("webdataset")

from tools import stream_shards


def test_it_reads_every_sample_and_shows_the_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    stream_shards.main(["--samples", "40", "--out", str(tmp_path), "--workers", "0", "--batch-size", "4"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == 10
    assert rows[-1].startswith("| 40 |")
    assert all(float(row.split("|")[2]) > 50 for row in rows)
