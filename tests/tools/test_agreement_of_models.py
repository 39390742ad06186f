"""The tool that compares the maps of several models: groups, pairs, and the words that name objects."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import Trained

from caption.analysis.agreement import Agreement
from tools import agreement as tool


def test_a_group_is_numbered_and_a_pattern_is_a_group(tmp_path: Path):
    for name in ("b", "a"):
        (tmp_path / f"soft_{name}.ckpt").touch()
    found = tool.read_models([f"soft={tmp_path}/soft_*.ckpt", "hard=shapes-hard", "soft=shapes"])
    assert found == {
        "soft 0": str(tmp_path / "soft_a.ckpt"),
        "soft 1": str(tmp_path / "soft_b.ckpt"),
        "hard 0": "shapes-hard",
        "soft 2": "shapes",
    }


@pytest.mark.parametrize(
    ("models", "told"),
    [
        (["soft=shapes"], "two models or more"),
        (["shapes", "soft=shapes"], "shapes: write GROUP=CKPT"),
        (["soft=shapes", "hard=shapes-hard"], "shapes does not say on which data it was trained"),
    ],
)
def test_what_cannot_be_compared_is_refused(models: list[str], told: str, capsys: pytest.CaptureFixture[str]):
    assert tool.main(models) == 2
    assert told in capsys.readouterr().err


def agreed(same_cell: float) -> Agreement:
    values = {name: np.array([same_cell, same_cell]) for name in tool.MEASURES}
    unknown = {name: np.array([np.nan, 0.5]) for name in tool.MEASURES}
    return Agreement(("red", "circle"), np.array([0, 1]), values, unknown, unknown)


def test_groups_have_the_means_of_their_pairs():
    pairs = {
        ("soft 0", "soft 1"): agreed(0.2),
        ("soft 0", "hard 0"): agreed(0.8),
        ("soft 0", "hard 1"): agreed(0.25),
        ("soft 1", "hard 0"): agreed(0.75),
    }
    rows = [line for line in tool.by_group(pairs).splitlines() if "same cell" in line]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [row[:2] for row in cells] == [
        ["soft / soft", "1"],
        ["soft / hard, same number", "1"],
        ["soft / hard", "2"],
    ]
    assert cells[2][3:5] == ["0.500 [0.500, 0.500]", "0.250 to 0.750"]
    assert cells[2][5] == "0.500 [0.500, 0.500]"


def test_the_same_model_twice_agrees_with_itself(
    trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    other = shutil.copy(trained.folder / "best.ckpt", tmp_path / "other.ckpt")
    out = tmp_path / "agreement.md"
    models = [f"soft={trained.folder / 'best.ckpt'}", f"soft={other}"]
    assert tool.main([*models, "--limit", "4", "--out", str(out)]) == 0
    text = out.read_text()
    assert text == capsys.readouterr().out
    assert "| soft 0 |  | 1.000 [1.000, 1.000] |" in text  # same cell
    assert "| soft 1 | 0.000 [0.000, 0.000] |  |" in text  # divergence
    assert "All words (" in text
    assert re.search(r"Words that name objects \((8|9|1[0-2])\)", text)  # two or three in each
