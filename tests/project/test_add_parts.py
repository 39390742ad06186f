"""docs/add-an-encoder.md and docs/add-a-decoder.md: their blocks give parts that train, caption and are drawn."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.page_blocks import DOCS, page_blocks
from PIL import Image

from caption.analysis.interventions import Force, intervene
from caption.box import Box
from caption.cli.main import main
from caption.decoders import RecurrentDecoder
from caption.encoders import Encoder

SMALL = (
    *(
        "--trainer.max_epochs=1",
        "--trainer.enable_progress_bar=false",
        "--trainer.log_every_n_steps=1",
        "--attention_figures.images=0",
    ),
    *("--data.reader.init_args.train=40", "--data.reader.init_args.val=5", "--data.reader.init_args.test=5"),
)

PAGES = {"add-an-encoder.md": ("conv_mixer", Encoder), "add-a-decoder.md": ("luong", RecurrentDecoder)}
"""The names of the files that a page has, and the base class."""


@pytest.fixture(
    scope="module",
    params=PAGES,
    ids=lambda page: PAGES[page][0],
)
def followed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    """The names that the blocks of a page leave, run in an empty folder with a short training."""
    page = request.param
    name, _ = PAGES[page]
    folder = tmp_path_factory.mktemp(name)
    (folder / f"{name}.py").write_text(page_blocks(page, "python")[0], encoding="utf-8")
    (folder / f"{name}.yaml").write_text(page_blocks(page, "yaml")[0], encoding="utf-8")
    names: dict[str, Any] = {"page": page, "name": name, "folder": folder}
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        for line in page_blocks(page, "sh")[0].splitlines():
            program, *arguments = shlex.split(line)
            assert program == "caption"
            assert main([*arguments, *SMALL]) == 0
        for block in page_blocks(page, "python")[1:]:
            exec(compile(block, page, "exec"), names)
        yield names
    sys.modules.pop(name, None)


@pytest.mark.slow
def test_the_page_gives_a_captioner_and_its_picture(followed: dict[str, Any]):
    captioner, result, name = followed["captioner"], followed["result"], followed["name"]
    specs = [captioner.encoder.spec["class_path"], captioner.decoder.spec["class_path"]]
    assert any(spec.startswith(f"{name}.") for spec in specs)
    cells = 16 if name == "conv_mixer" else 8
    assert result.weights.shape[1:] == (cells, cells)
    with Image.open(Path(followed["folder"], f"{name}.png")) as picture:
        assert picture.width > 600
    if name == "conv_mixer":
        assert captioner.encoder.boxes(64, 64) == (Box(0.0, 0.0, 64.0, 64.0),)
    changed = intervene(captioner, result.image, Force((2, 5), at=0))
    assert changed.changed.weights[0, 2, 5] == pytest.approx(1)


@pytest.mark.parametrize("page", PAGES)
def test_the_table_names_the_methods_that_there_are(page: str):
    _, base = PAGES[page]
    table = re.search(
        r"^\|.*\| result \|\n(.*?)\n\n", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert table is not None
    names = [name for row in table[1].splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert len(names) >= 6
    assert all(hasattr(base, name) or name in base.__annotations__ for name in names)
