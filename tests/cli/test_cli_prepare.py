"""`caption prepare`: help, exit codes, and resuming after an interruption. The data sets are in tests/data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.downloads import make_zip, photo

from caption.cli.main import main
from caption.data.prepare.datasets import DATASETS, Dataset
from caption.data.prepare.downloads import Member
from caption.data.prepare.layout import Plan


class Photos(Dataset):
    """All files of the downloads."""

    folder = "data/photos"

    def plan(self, downloads: Sequence[Member]) -> Plan:
        images = {f"images/{member.name}": member for member in downloads}
        return Plan(images, {}, [f"found {downloads[0].name}"])


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(DATASETS, "photos", Photos())
    make_zip(tmp_path / "photos.zip", {f"{number}.jpg": photo(number) for number in range(3)})
    return str(tmp_path / "photos.zip")


@pytest.mark.parametrize("name", DATASETS)
def test_help_tells_where_to_get_a_data_set(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"\n  caption prepare {name} " in out
    assert "\nWhere to get it: " in out
    assert f"(default {DATASETS[name].folder})" in " ".join(out.split())


def test_help_names_every_data_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"\n    {name}" in out for name in DATASETS)


@pytest.mark.parametrize("args", [[], ["imagenet"], ["coco"], ["coco", "x.zip", "--check"], ["shards"]])
def test_wrong_usage(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "(caption prepare" in err


def test_names_in_a_download_do_not_steer_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(DATASETS, "photos", Photos())
    make_zip(tmp_path / "photos.zip", {"\x1b[2J\u202e.jpg": b"no photo"})
    assert main(["prepare", "photos", str(tmp_path / "photos.zip"), "--out", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert err.count(r"\x1b[2J\u202e.jpg") == 2
    assert "\x1b" not in err


def test_a_download_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "coco", str(tmp_path / "missing.zip")]) == 2
    assert "missing.zip' does not exist" in capsys.readouterr().err


def test_it_says_what_it_has_done(archive: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepare", "photos", archive, "--out", str(tmp_path / "out")]) == 0
    assert len(list((tmp_path / "out" / "images").iterdir())) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "found 0.jpg" in printed.err
    assert f"3 images in '{tmp_path / 'out'}', 0 damaged" in printed.err
