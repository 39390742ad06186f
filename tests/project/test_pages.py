"""Pages of docs/ that a reader follows: their commands, sessions and files do what the page says."""

from __future__ import annotations

import code
import contextlib
import io
import pickle
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from helpers.user_files import parsers
from PIL import Image

from caption.analysis.interventions import Force, intervene
from caption.attention import Attention
from caption.core.box import Box
from caption.data.shapes.dataset import write_shapes
from caption.data.shapes.render import render
from caption.data.shapes.scene import random_scene
from caption.decoders import RecurrentDecoder
from caption.encoders import Encoder

DOCS = Path(__file__).parents[2] / "docs"
FEW = [
    f"--data.reader.init_args.{split}={count}" for split, count in (("train", 40), ("val", 5), ("test", 5))
]
SHORT = [
    *("--trainer.max_epochs=1", "--trainer.enable_progress_bar=false", "--trainer.log_every_n_steps=1"),
    "--attention_figures.images=0",
]
SMALL = {"features": FEW, "fit": [*FEW, *SHORT], "test": [*FEW, *SHORT]}
"""Options with which a verb takes seconds."""


def all_blocks(page: str) -> list[tuple[str, str]]:
    """The language ("python", "yaml", "sh", "pycon", or "" for output) and the text of each block, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def page_blocks(page: str, language: str) -> list[str]:
    """The text of each block of a language, in order."""
    return [block for named, block in all_blocks(page) if named == language]


def commands(block: str) -> list[list[str]]:
    """The arguments of each `caption` command of a block of shell."""
    found = []
    for line in block.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\||&$", line):
            if "..." not in part and (match := re.match(r"(?:.* )?caption (\w.*)", part.partition(" #")[0])):
                found.append(shlex.split(match[1]))
    return found


@contextlib.contextmanager
def working_in(folder: Path, *modules: str) -> Iterator[None]:
    """In a folder whose modules can be imported; they are forgotten in the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        yield
    for module in modules:
        sys.modules.pop(module, None)


def run_commands(block: str, chosen: Callable[[list[str]], bool] = lambda words: True) -> None:
    """The `caption` commands of a block, or some of them, with few scenes and a short training."""
    from caption.cli.main import main

    for verb, *arguments in filter(chosen, commands(block)):
        assert main([verb, *arguments, *SMALL.get(verb, [])]) == 0


class Console(code.InteractiveConsole):
    """Shows the last line of a traceback only, as the pages do."""

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        print(f"{type(error).__module__}.{type(error).__qualname__}: {error}")


def typed(session: str) -> str:
    """The output of a session, with its input."""
    console, out, more = Console(), io.StringIO(), False
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        for line in re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", session, re.MULTILINE):
            print(f"{'...' if more else '>>>'} {line}".rstrip())
            more = console.push(line)
    return out.getvalue()


def without_numbers(session: str) -> list[str]:
    """The words of a session: numbers may differ in their last digits, and lines in where they are broken."""
    return re.sub(r"\d+", "#", session).split()


PARTS = {
    "add-a-mechanism.md": ("four_heads", Attention),
    "add-an-encoder.md": ("conv_mixer", Encoder),
    "add-a-decoder.md": ("luong", RecurrentDecoder),
}
"""Pages that add a part: the names of their files, and the base class."""
TUTORIAL = "tutorial.md"


# -- adding a part -------------------------------------------------------------------------------------------------


def follow(page: str, folder: Path) -> dict[str, Any]:
    """The names that the blocks of a page leave: its part, trained shortly in a folder, and what it draws."""
    name, _ = PARTS[page]
    first, *others = page_blocks(page, "python")
    (folder / f"{name}.py").write_text(first, encoding="utf-8")
    (folder / f"{name}.yaml").write_text(page_blocks(page, "yaml")[0], encoding="utf-8")
    run_commands(page_blocks(page, "sh")[0])
    names: dict[str, Any] = {}
    for block in others:
        exec(compile(block, page, "exec"), names)
    with Image.open(f"{name}.png") as picture:
        assert picture.width > 600
        names["height"] = picture.height
    changed = intervene(names["captioner"], names["result"].image, Force((2, 5), at=0)).changed
    assert changed.weights[0, 2, 5] == pytest.approx(1)
    return names


def test_quoted_code_is_the_code():
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    quotes = re.findall(r"`(caption/[a-z_/]+\.py)`\):\n\n```python\n(.*?)```", text, re.DOTALL)
    assert len(quotes) == 3
    for path, quote in quotes:
        code = (DOCS.parent / path).read_text(encoding="utf-8")
        assert any(indent(quote, " " * depth) in code for depth in (4, 8)), path


@pytest.mark.nightly
@pytest.mark.parametrize("page", PARTS)
def test_a_part_is_trained_drawn_and_forced(page: str, tmp_path: Path):
    name, base = PARTS[page]
    with working_in(tmp_path, name):
        names = follow(page, tmp_path)
        captioner, result = names["captioner"], names["result"]
        part = captioner.encoder if base is Encoder else captioner.decoder
        part = part.attention if base is Attention else part
        assert part.spec["class_path"].startswith(f"{name}.")
        assert result.weights.shape[1:] == ((16, 16) if base is Encoder else (8, 8))
        assert base is not Encoder or part.boxes(64, 64) == (Box(0.0, 0.0, 64.0, 64.0),)
        if base is Attention:
            assert "val/pointing_accuracy" in next(tmp_path.rglob("metrics.csv")).read_text()
            heads = result.maps["heads"]
            assert heads.shape == (len(result.words), 4, 8, 8)
            np.testing.assert_allclose(heads.sum((-2, -1)), 1, rtol=1e-5)
            np.testing.assert_allclose(result.weights, heads.mean(1), rtol=1e-5, atol=1e-7)
            assert names["height"] > 4 * 100  # a row of heatmaps for each
            assert "heads[3]" in result.to_html()


@pytest.mark.parametrize("page", PARTS)
def test_the_table_names_the_methods_that_there_are(page: str):
    _, base = PARTS[page]
    text = (DOCS / page).read_text(encoding="utf-8")
    table = re.search(r"^\|.*\| result \|\n(.*?)\n\n", text, re.DOTALL | re.MULTILINE)
    assert table is not None
    names = [name for row in table[1].splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert len(names) >= 6
    assert all(hasattr(base, name) or name in base.__annotations__ for name in names)


# -- the tutorial and the session ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_session_of_the_python_page_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(DOCS.parent)
    check_session("python.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the files of the clone that the tutorial names."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "docs").symlink_to(DOCS)
    with working_in(folder, "top_four"):
        yield folder


def run(block: int, capsys: pytest.CaptureFixture[str]) -> str:
    """What the commands of a block of the tutorial print."""
    run_commands(page_blocks(TUTORIAL, "sh")[block])
    return capsys.readouterr().out


def check_session(page: str) -> None:
    """The page shows what its lines of Python print, but for numbers."""
    expected = "".join(page_blocks(page, "pycon"))
    assert len(expected) > 200
    assert without_numbers(typed(expected)) == without_numbers(expected)


@pytest.mark.nightly
def test_the_tutorial_captions_a_photo_and_says_why_it_looks_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
):
    caption = run(0, capsys)
    assert caption in page_blocks(TUTORIAL, "")
    with Image.open(folder / "man_tripod.png") as drawn, Image.open(DOCS / "tutorial_words.png") as shown:
        assert drawn.size == shown.size
    assert run(1, capsys) == caption
    assert "satt-word" in (folder / "photographer.html").read_text(encoding="utf-8")
    check_session(TUTORIAL)
    assert (folder / "looked_elsewhere.png").exists()
    assert without_numbers(run(2, capsys)) == without_numbers(page_blocks(TUTORIAL, "")[1])


@pytest.mark.nightly
def test_the_tutorial_makes_a_mechanism_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]):
    mechanism, draw = page_blocks(TUTORIAL, "python")
    (folder / "top_four.py").write_text(mechanism, encoding="utf-8")
    (folder / "top_four.yaml").write_text(page_blocks(TUTORIAL, "yaml")[0], encoding="utf-8")
    printed, expected = (
        [re.sub(r"[\d +-]+", " ", line).strip() for line in text.splitlines()]
        for text in (run(3, capsys), page_blocks(TUTORIAL, "")[2])
    )
    assert [line for line in expected if line not in printed] == []
    names: dict[str, Any] = {}
    exec(compile(draw, TUTORIAL, "exec"), names)
    assert {(step > 0).sum() for step in names["captions"]["top four"].weights} == {4}
    assert {(step > 0).sum() for step in names["captions"]["softmax"].weights} == {64}
    assert (folder / "top_four.png").exists()


@pytest.mark.slow
def test_the_tutorial_takes_photos_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]):
    (folder / "photos").mkdir()
    for number in range(30):
        render(random_scene(seed=0, split="test", index=number)).save(folder / "photos" / f"{number}.png")
    rows = [f"{number}.png,a photo of shapes" for number in range(30)]
    (folder / "own.csv").write_text("\n".join(["image,caption", *rows]), encoding="utf-8")
    run(4, capsys)
    assert "own.csv" in (folder / "own.yaml").read_text(encoding="utf-8")


# -- all other pages -----------------------------------------------------------------------------------------------

NIGHTLY = [
    pytest.param(page, marks=pytest.mark.nightly)
    for page in ("alignment.md", "analysis.md", "export.md", "features.md", "pictures.md")
]
RUN = [*NIGHTLY, "../README.md", "explore.md", "presets.md", "scores.md"]
"""Pages whose blocks of Python run here, in their order, with the commands between them."""
EVERY = ["../README.md", *sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))]
IN_OTHER_TESTS = {*PARTS, TUTORIAL, "own-data.md"}
ELSEWHERE = re.compile(r"flickr|coco|captions|test\.csv|\.ckpt|\.npz|\.pth|(serve|demo|analyse)( |$)")
"""Commands that need data which is not in the clone, that wait, or that take minutes."""


def anchors(page: Path) -> set[str]:
    """Those of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings():
    dead = []
    for page in EVERY:
        text = (DOCS / page).read_text(encoding="utf-8")
        for link in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", text):
            name, _, anchor = link.partition("#")
            target = (DOCS / page).parent / name if name else DOCS / page
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
                dead.append((page, link))
    assert dead == []


def test_files_of_the_repository_that_guides_name_are_there():
    missing = []
    for page in [page for page in EVERY if not page.startswith("results/")]:
        text = (DOCS / page).read_text(encoding="utf-8")
        for name in re.findall(r"`((?:caption|tests|configs|\.ci)/[\w./-]+|test_\w+\.py)`", text):
            tests = (DOCS.parent / "tests").rglob(name)
            found = (DOCS.parent / name).exists() if "/" in name else any(tests)
            if not found and "NAME" not in name:
                missing.append((page, name))
    assert missing == []


def test_every_block_of_yaml_and_json_is_read():
    for page in EVERY:
        for language, block in all_blocks(page):
            assert language not in ("yaml", "json") or yaml.safe_load(block)


@pytest.mark.nightly
@pytest.mark.parametrize("page", [page for page in EVERY if page not in IN_OTHER_TESTS])
def test_every_command_of_a_page_is_understood(page: str, capsys: pytest.CaptureFixture[str]):
    from caption.cli.main import main

    known = parsers()
    for words in [words for block in page_blocks(page, "sh") for words in commands(block)]:
        if words[0] in ("fit", "test"):
            assert main([*words, "--print_config"]) == 0
        elif "--help" not in words:
            name = max((name for name in known if " ".join(words).startswith(name)), key=len)
            known[name].parse_args(words[len(name.split()) :])


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """What the pages name: the photo, scenes of the demonstration, and files of other programs."""
    for name in ("docs/photographer.png", "cat.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((DOCS / "photographer.png").read_bytes())
    scenes = tmp_path / "demo" / "shapes" / "images"
    scenes.mkdir(parents=True)
    for number in range(1, 19):
        render(random_scene(seed=0, split="test", index=number)).save(scenes / f"test_{number:06d}.png")
    theirs = {"decoder": torch.nn.Linear(2, 2), "encoder": torch.nn.Linear(2, 2)}
    torch.save(theirs, tmp_path / "BEST_checkpoint.pth.tar")
    (tmp_path / "model.npz.pkl").write_bytes(pickle.dumps({"dim": 1800, "valid_freq": None}))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_the_blocks_of_a_page_run_in_their_order(page: str, clone: Path):
    if page == "explore.md":
        pytest.importorskip("anywidget")
    if page == "export.md":
        pytest.importorskip("onnxscript")
    names: dict[str, Any] = {}
    with working_in(clone, "captioner"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        for language, block in all_blocks(page):
            if language == "python":
                exec(compile(block, page, "exec"), names)
            elif language == "sh":
                run_commands(block, lambda words: not ELSEWHERE.search(" ".join(words)))


@pytest.mark.nightly
def test_the_page_on_alignment_says_what_its_block_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "demo").mkdir()
    write_shapes(tmp_path / "demo" / "shapes", train=1, val=1)
    monkeypatch.chdir(tmp_path)
    (block,) = page_blocks("alignment.md", "python")
    exec(compile(block, "alignment.md", "exec"), {})
    said = (DOCS / "alignment.md").read_text(encoding="utf-8").split("\n\n")[1]
    counted = {int(number) for number in re.findall(r"\d+", capsys.readouterr().out)}
    assert counted == {int(number) for number in re.findall(r"\d+", said)}
