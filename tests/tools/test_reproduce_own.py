"""The tool that measures fine-tuning on a few photos."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tools.reproduce import own_photos
from tools.reproduce.__main__ import main

PHOTOS = 230


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Photos 0 to 229 are of children, but for every tenth; the first 20 are training photos of the installed model."""
    folder = tmp_path / "flickr8k"
    (folder / "images").mkdir(parents=True)
    lines = []
    for number in range(PHOTOS):
        (folder / "images" / f"{number}.jpg").touch()
        word = "tree" if number % 10 == 0 else "Girls"
        lines += [f"{number}.jpg#{k}\t{word if k < 2 else 'Something'} outside" for k in range(5)]
    (folder / "Flickr8k.token.txt").write_text("\n".join(lines))
    (folder / "Flickr_8k.trainImages.txt").write_text("\n".join(f"{number}.jpg" for number in range(20)))
    return folder


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """What was run. CIDEr is 0.5 from scratch and 0.8 fine-tuned, and 0.7 as installed."""
    done: list[tuple[str, ...]] = []

    def tested(best: Path, file: Path, arguments: list[str]) -> dict[str, Any]:
        done.append(("test", best.parent.parent.name))
        cider = {"installed": 0.7, "scratch": 0.5}.get(best.parent.parent.name.split("_")[0], 0.8)
        return {"scores": {"CIDEr": cider, "BLEU-4": 0.2, "NLL": 2.0}}

    def fit(folder: Path, arguments: list[str]) -> Path:
        done.append(("fit", folder.parent.name))
        return folder / "best.ckpt"

    monkeypatch.setattr(own_photos, "run", lambda *arguments: done.append(arguments))
    monkeypatch.setattr(own_photos, "fit", fit)
    monkeypatch.setattr(own_photos, "trained_seconds", lambda folder: 90)
    monkeypatch.setattr(own_photos, "test_checkpoint", tested)
    return done


def test_the_photos_are_of_the_kind_and_new_to_the_model(data: Path):
    captions = own_photos.captions_of(data, own_photos.KINDS["children"])
    numbers = {int(Path(name).stem) for name in captions}
    assert numbers == {number for number in range(20, PHOTOS) if number % 10}
    assert list(captions) != sorted(captions)
    assert all(len(each) == 5 for each in captions.values())


def test_every_draw_is_trained_by_the_pages_commands_and_tested_on_other_photos(
    data: Path, tmp_path: Path, ran: list[tuple[str, ...]]
):
    document = tmp_path / "own-photos.md"
    document.write_text("<!-- section own_photos begins -->\n<!-- section own_photos ends -->\n")
    out = tmp_path / "runs"
    command = ["own", "--data", str(data), "--out", str(out), "--document", str(document)]
    assert main([*command, "--sizes", "8", "20", "--draws", "2"]) == 0
    assert [each for each in ran if each[0] == "fit"] == [
        ("fit", f"{origin}_{size}_{draw}")
        for draw in (0, 1)
        for size in (8, 20)
        for origin in ("scratch", "fine-tuned")
    ]
    checks = [each for each in ran if each[0] == "check"]
    assert {each[each.index("--base") + 1] for each in checks} == {"own_photos", "flickr8k_soft"}
    assert not any("--splits" in each for each in checks)
    rows = list(csv.DictReader((out / "fine-tuned_20_1" / "test.csv").open()))
    photos = {split: {row["image"] for row in rows if row["split"] == split} for split in ("train", "test")}
    assert (len(photos["train"]), len(photos["test"])) == (20, own_photos.HELD_OUT)
    assert not photos["train"] & photos["test"]
    others = list(csv.DictReader((out / "fine-tuned_8_0" / "test.csv").open()))
    assert {row["image"] for row in others if row["split"] == "test"} == photos["test"]
    assert "| 20 | fine-tuned | 0.800 (0.800, 0.800) |" in document.read_text()
    assert json.loads((tmp_path / "own_photos.json").read_text())["installed"]["CIDEr"] == 0.7
    ran.clear()
    assert main([*command, "--sizes", "8", "20", "--draws", "2"]) == 0
    assert ran == []
