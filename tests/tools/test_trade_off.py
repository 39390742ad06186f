"""Captions against maps: which points stand in which panel, and the tool that draws a table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import trade_off as tool
from tools.trade_off import trade_off

MODELS = {
    "soft": {"BLEU-4": 0.20, "CIDEr": 0.5, "pointing accuracy": 0.6, "entropy": 3.2, "faithfulness": 0.1},
    "hard": {"BLEU-4": 0.21, "CIDEr": 0.6, "pointing accuracy": 0.8, "entropy": 1.1},
    "no maps": {"BLEU-4": 0.19, "CIDEr": 0.4},
}


def points(ax) -> list[tuple[float, float]]:
    return [tuple(map(float, each)) for collection in ax.collections for each in collection.get_offsets()]


def test_every_model_stands_in_the_panels_whose_numbers_it_has():
    axes = trade_off(MODELS).axes
    assert len(axes) == 6
    assert [len(points(ax)) for ax in axes] == [2, 2, 1, 2, 2, 1]
    assert points(axes[0]) == [(0.6, 0.20), (0.8, 0.21)]
    assert points(axes[4]) == [(3.2, 0.5), (1.1, 0.6)]
    assert axes[3].get_xlabel() == "pointing accuracy"
    assert axes[3].get_ylabel() == "CIDEr"


def test_the_legend_names_models_that_are_drawn():
    (legend,) = trade_off(MODELS).legends
    assert [text.get_text() for text in legend.get_texts()] == ["soft", "hard"]


def test_panels_without_points_are_left_out_and_chance_is_a_line():
    axes = trade_off({"a": {"CIDEr": 0.5, "pointing accuracy": 0.6}}, {"pointing accuracy": 0.3}).axes
    assert len(axes) == 1
    assert axes[0].lines[0].get_xdata()[0] == 0.3
    with pytest.raises(ValueError, match="no model has one of BLEU-4, CIDEr"):
        trade_off({"a": {"CIDEr": 0.5}})


def test_the_tool_draws_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "models.json").write_text(json.dumps(MODELS))
    assert (
        tool.main([str(tmp_path / "models.json"), "--out", str(tmp_path / "a.png"), "--chance", "0.3"]) == 0
    )
    assert (tmp_path / "a.png").stat().st_size > 5000
    (tmp_path / "models.json").write_text("[1]")
    with pytest.raises(SystemExit):
        tool.main([str(tmp_path / "models.json"), "--out", str(tmp_path / "a.png")])
    assert "models.json" in capsys.readouterr().err
