"""Captions in Chinese from the table to the page: read, learnt, said, scored and drawn by character."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from helpers.command_line import QUIET, Cli, check_refused
from helpers.fonts import installed_font
from PIL import Image

COLOURS = {"red": "红色", "green": "绿色", "blue": "蓝色"}
PATTERNS = ("一张{}的图。", "这是{}的图片。", "图里都是{}。")


@pytest.fixture
def chinese(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """zh.csv and photos of one colour each."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").mkdir()
    with (tmp_path / "zh.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption"])
        for number in range(24):
            colour = list(COLOURS)[number % 3]
            image = Image.new("RGB", (64 + number, 64), colour)
            image.save(tmp_path / "photos" / f"{number}.png")
            table.writerows([f"{number}.png", each.format(COLOURS[colour])] for each in PATTERNS)
    return tmp_path


@pytest.mark.nightly
def test_a_model_in_chinese(cli: Cli, chinese: Path):
    data = ("zh.csv", "--images", "photos")
    assert "take the tokenizer 'characters'" in cli("check", *data).out
    base = ("--base", "shapes_soft", "--tokenizer", "characters", "--write", "own.yaml")
    assert cli("check", *data, *base).code == 0
    short = ("--trainer.max_epochs", "3", "--model.scheduler", "null")
    assert cli("fit", "-c", "own.yaml", *QUIET, *short).code == 0
    with installed_font(chinese / "squares.ttf", "".join({*"".join(PATTERNS), *"".join(COLOURS.values())})):
        args = ("describe", "photos/1.png", "--model", "runs/own/best.ckpt", "--format", "json")
        said = cli(*args, "--heatmap", "map.png", "--html", "page.html")
    assert said.code == 0, said.err
    assert "font" not in said.err
    (caption,) = json.loads(said.out)
    assert caption["text"] == "".join(caption["words"])
    assert {*caption["words"]} <= {*"".join(PATTERNS), *"".join(COLOURS.values())}
    page = (chinese / "page.html").read_text(encoding="utf-8")
    assert caption["words"][0] in page or json.dumps(caption["words"][0])[1:-1] in page
    tested = cli("test", "-c", "own.yaml", "--ckpt_path", "runs/own/best.ckpt")
    assert "tok:characters-1" in tested.out, tested.err
    (folder,) = chinese.glob("runs/own/**/test_captions.json")
    references = folder.with_name("test_references.json")
    files = ("score", "--candidates", str(folder), "--references", str(references))
    assert cli(*files, "--tokenizer", "characters").code == 0
    check_refused(cli(*files), "'characters'")
