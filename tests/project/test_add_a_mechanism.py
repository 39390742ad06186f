"""docs/add-a-mechanism.md: its blocks give a mechanism that trains, captions and draws a heatmap per head."""

from __future__ import annotations

import csv
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from helpers.command_line import Ran, run_command
from helpers.page_blocks import DOCS, page_blocks
from PIL import Image

import caption
import caption.visualize
from caption.analysis.interventions import Force, intervene
from caption.attention import Attention, Query, QuerySizes
from caption.regions import Regions

REPOSITORY = Path(__file__).parents[2]
PAGE = (DOCS / "add-a-mechanism.md").read_text(encoding="utf-8")
HEADS = 4
SMALL = (
    *("--trainer.max_epochs=1", "--trainer.enable_progress_bar=false", "--trainer.log_every_n_steps=1"),
    *("--data.reader.init_args.train=40", "--data.reader.init_args.val=5", "--data.reader.init_args.test=5"),
)


class Followed(NamedTuple):
    """A working directory in which the page was followed up to the end of the training."""

    folder: Path
    ran: Ran


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "four_heads.py").write_text(page_blocks("add-a-mechanism.md", "python")[0], encoding="utf-8")
    (folder / "four_heads.yaml").write_text(page_blocks("add-a-mechanism.md", "yaml")[0], encoding="utf-8")
    program, *arguments = shlex.split(page_blocks("add-a-mechanism.md", "sh")[0])
    assert program == "caption"
    # Like the installed command, which has not the working directory in its path; and the checkout that is tested.
    environment = {"PYTHONPATH": str(REPOSITORY), "PYTHONSAFEPATH": "1"}
    ran = run_command(*arguments, *SMALL, cwd=folder, env=environment)
    assert ran.code == 0, ran.err
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        yield Followed(folder, ran)
    sys.modules.pop("four_heads", None)


@pytest.fixture(scope="module")
def shown(followed: Followed) -> dict[str, Any]:
    """The names that the page's last block leaves, and the figures that it saved."""
    names: dict[str, Any] = {"figures": []}
    save = caption.visualize.save_figure

    def saved(figure: Any, path: str) -> None:
        names["figures"].append(figure)
        save(figure, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(caption.visualize, "save_figure", saved)
        exec(compile(page_blocks("add-a-mechanism.md", "python")[-1], "add-a-mechanism.md", "exec"), names)
    return names


@pytest.mark.slow
def test_training_measures_the_new_mechanism(followed: Followed):
    logs = followed.folder / "runs" / "four_heads" / "logs" / "version_0"
    rows = list(csv.DictReader((logs / "metrics.csv").open()))
    names = {name for row in rows for name, value in row.items() if value}
    assert {"val/BLEU-4", "val/pointing_accuracy", "train/attention_entropy"} <= names


def test_the_last_block_draws_a_row_of_heatmaps_for_each_head(followed: Followed, shown: dict[str, Any]):
    result, (figure,) = shown["result"], shown["figures"]
    words = len(result.words)
    assert words
    assert result.maps["heads"].shape == (words, HEADS, 8, 8)
    panels = [ax for ax in figure.axes if ax.get_title()]
    rows = sorted({round(ax.get_position().y0, 6) for ax in panels}, reverse=True)
    assert len(rows) == HEADS
    for head, row in enumerate(rows):
        titles = [ax.get_title() for ax in panels if round(ax.get_position().y0, 6) == row]
        assert titles == [f"heads[{head}]", *result.words]
    with Image.open(followed.folder / "four_heads.png") as picture:
        assert picture.format == "PNG"
        assert picture.height > HEADS * 100


def test_the_four_heads_differ_and_their_mean_is_the_summary(shown: dict[str, Any]):
    result = shown["result"]
    heads = torch.from_numpy(result.maps["heads"])
    torch.testing.assert_close(heads.sum((-2, -1)), torch.ones(heads.shape[:2]))
    torch.testing.assert_close(torch.from_numpy(result.weights), heads.mean(1))
    assert not any(torch.allclose(heads[:, 0], heads[:, head]) for head in range(1, HEADS))


def test_analysis_and_the_page_take_it_as_it_is(shown: dict[str, Any]):
    result = shown["result"]
    changed = intervene(shown["captioner"], result.image, Force((2, 5), at=0))
    assert changed.changed.maps["heads"][0, :, 2, 5] == pytest.approx(1)
    assert "heads[3]" in result.to_html()


def test_masked_regions_have_no_weight(followed: Followed):
    from four_heads import FourHeads

    torch.manual_seed(0)
    mechanism = FourHeads(size=8)
    mechanism.build((6,), QuerySizes(hidden=5))
    mask = torch.tensor([[True, True, False, True]])
    vectors = torch.randn(1, 4, 6)
    memory = mechanism.project((Regions(vectors, (2, 2), mask),))
    query = Query(torch.randn(1, 2, 5))
    attended = mechanism(query, memory)
    assert torch.equal(attended.weights[..., 2], torch.zeros(1, 2))
    memory = mechanism.project((Regions(vectors[:, [0, 1, 3]], (1, 3)),))
    torch.testing.assert_close(attended.context, mechanism(query, memory).context)


def test_the_table_names_the_methods_that_there_are():
    (names,) = [
        re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
        for table in re.split(r"\n\n", PAGE)
        if "| method |" in table
    ]
    assert {"create_weights", "memory", "weigh", "read"} <= set(names)
    assert all(hasattr(Attention, name) for name in names)
