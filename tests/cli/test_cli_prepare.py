"""`caption prepare`: help, exit codes, and resuming after an interruption. The data sets are in tests/data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from helpers.command_line import Cli, check_refused
from helpers.downloads import make_zip, photo

from caption.data.prepare.datasets import DATASETS, Dataset
from caption.data.prepare.downloads import Member
from caption.data.prepare.layout import Plan


class Photos(Dataset):
    """All files of the downloads."""

    folder = "data/photos"

    def plan(self, downloads: Sequence[Member]) -> Plan:
        images = {f"images/{member.name}": member for member in downloads}
        return Plan(images, {}, [f"found {downloads[0].name}"])


def test_help_tells_where_to_get_each_data_set(cli: Cli) -> None:
    out = cli("prepare", "--help").out
    for name, dataset in DATASETS.items():
        assert f"\n    {name}" in out
        ran = cli("prepare", name, "--help")
        assert f"\n  caption prepare {name} " in ran.out
        assert "\nWhere to get it: " in ran.out
        assert f"(default {dataset.folder})" in " ".join(ran.out.split())


@pytest.mark.parametrize("args", ["", "imagenet", "coco", "coco x.zip --check", "shards", "coco missing.zip"])
def test_wrong_usage(args: str, cli: Cli) -> None:
    said = "missing.zip' does not exist" if "missing" in args else "(caption prepare"
    check_refused(cli("prepare", *args.split()), said)


def test_it_says_what_it_has_done_without_steering_the_terminal(
    cli: Cli, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setitem(DATASETS, "photos", Photos())
    command = ("prepare", "photos", tmp_path / "photos.zip", "--out", tmp_path / "out")
    make_zip(tmp_path / "photos.zip", {f"{number}.jpg": photo(number) for number in range(3)})
    ran = cli(*command)
    assert (ran.code, ran.out) == (0, "")
    assert len(list((tmp_path / "out" / "images").iterdir())) == 3
    assert "found 0.jpg" in ran.err
    assert f"3 images in '{tmp_path / 'out'}', 0 damaged" in ran.err
    make_zip(tmp_path / "photos.zip", {"\x1b[2J\u202e.jpg": b"no photo"})
    ran = cli(*command)
    assert ran.code == 1
    assert ran.err.count(r"\x1b[2J\u202e.jpg") == 2
    assert "\x1b" not in ran.err
