"""docs/tutorial.md: its commands, session and files, run in their order, do what the page says."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.page_blocks import DOCS, page_blocks
from helpers.sessions import typed, without_numbers
from PIL import Image

from caption.cli.main import main
from caption.data.shapes.render import render
from caption.data.shapes.scene import random_scene

PAGE = "tutorial.md"
FEW = [
    f"--data.reader.init_args.{split}={count}" for split, count in (("train", 40), ("val", 5), ("test", 5))
]
SHORT = [
    "--trainer.max_epochs=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.log_every_n_steps=1",
    "--attention_figures.images=0",
]
SMALL = {"features": FEW, "fit": [*FEW, *SHORT], "test": [*FEW, *SHORT]}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the files of the clone that the page names."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "docs").symlink_to(DOCS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        yield folder
    sys.modules.pop("top_four", None)


def run(block: int, capsys: pytest.CaptureFixture[str]) -> str:
    """What the commands of a block print, with few scenes and a short training."""
    for line in page_blocks(PAGE, "sh")[block].splitlines():
        program, verb, *arguments = shlex.split(line)
        assert program == "caption"
        assert main([verb, *arguments, *SMALL.get(verb, [])]) == 0
    return capsys.readouterr().out


def without_digits(printed: str) -> list[str]:
    """Lines without numbers, signs and spaces between them."""
    return [re.sub(r"[\d +-]+", " ", line).strip() for line in printed.splitlines()]


def test_a_photo(folder: Path, capsys: pytest.CaptureFixture[str]):
    caption = run(0, capsys)
    assert caption in page_blocks(PAGE, "")
    with Image.open(folder / "man_camera.png") as drawn, Image.open(DOCS / "tutorial_words.png") as shown:
        assert drawn.size == shown.size
    assert run(1, capsys) == caption
    assert "satt-word" in (folder / "photographer.html").read_text(encoding="utf-8")


def test_why_it_looks_there(folder: Path):
    expected = "".join(page_blocks(PAGE, "pycon"))
    assert without_numbers(typed(expected)) == without_numbers(expected)
    assert (folder / "looked_elsewhere.png").exists()


def test_what_it_sees(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert without_numbers(run(2, capsys)) == without_numbers(page_blocks(PAGE, "")[1])


def test_a_mechanism_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]):
    mechanism, draw = page_blocks(PAGE, "python")
    (folder / "top_four.py").write_text(mechanism, encoding="utf-8")
    (folder / "top_four.yaml").write_text(page_blocks(PAGE, "yaml")[0], encoding="utf-8")
    printed = without_digits(run(3, capsys))
    assert [line for line in without_digits(page_blocks(PAGE, "")[2]) if line not in printed] == []
    names: dict[str, Any] = {}
    exec(compile(draw, PAGE, "exec"), names)
    assert {(step > 0).sum() for step in names["captions"]["top four"].weights} == {4}
    assert {(step > 0).sum() for step in names["captions"]["softmax"].weights} == {64}
    assert (folder / "top_four.png").exists()


def test_photos_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "photos").mkdir()
    rows = ["image,caption"]
    for number in range(30):
        scene = random_scene(seed=0, split="test", index=number)
        render(scene).save(folder / "photos" / f"{number}.png")
        rows.append(f"{number}.png,a photo of shapes")
    (folder / "own.csv").write_text("\n".join(rows), encoding="utf-8")
    run(4, capsys)
    assert "own.csv" in (folder / "own.yaml").read_text(encoding="utf-8")
