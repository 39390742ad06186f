"""NLL against heads left: what is counted, the tables and the figure; the commands are those that users type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from helpers.configurations import parse

from tools import head_curve as tool


def result(weight: float, gates: list[float], nll: float) -> dict[str, Any]:
    scores = {"NLL": nll, "BLEU-4": 0.9, "pointing": 0.5, "weights": 10, "milliseconds": 2.0}
    return {
        "weight": weight,
        "gates": gates,
        **scores,
        "without closed heads": {"weights": 5, "milliseconds": 1.5},
    }


def seed(number: int) -> dict[str, Any]:
    """Head 2 stays open longest; it is the most confident, and the least positional."""
    return {
        "seed": number,
        "heads": 3,
        "all": {"NLL": 0.2, "BLEU-4": 0.95, "pointing": 0.6, "milliseconds": 2.5},
        "roles": {name: [0.1, 0.2, 0.3] for name in tool.ROLES} | {"positional": [0.9, 0.5, 0.1]},
        "penalties": [
            result(0.01, [0.5, 0.9, 1.0], 0.21),
            result(0.1, [0.0, 0.0, 0.7], 0.30),
            result(0.05, [0.0, 0.2, 0.8], 0.22),
        ],
    }


def test_heads_are_counted_that_are_not_closed() -> None:
    assert [tool.left(each) for each in seed(0)["penalties"]] == [3, 1, 2]
    assert tool.stays(seed(0)) == [1, 2, 3]


def test_the_tables_say_what_is_left_and_which_heads_go_last() -> None:
    curve, heads = tool.tables([seed(0), seed(1)]).split("\n\n")
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in curve.splitlines()]
    assert [row[:3] for row in cells[2:]] == [
        ["no gates", "3", "0.2000 ± 0.0000"],
        ["0.01", "3, 3", "0.2100 ± 0.0000"],
        ["0.1", "1, 1", "0.3000 ± 0.0000"],
        ["0.05", "2, 2", "0.2200 ± 0.0000"],
    ]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in heads.splitlines()]
    assert [row[:2] for row in rows[2:8]] == [
        ["0", "2"],
        ["0", "1"],
        ["0", "0"],
        ["1", "2"],
        ["1", "1"],
        ["1", "0"],
    ]
    assert rows[8][2:4] == ["+1.00 ± 0.00", "-1.00 ± 0.00"]


def test_a_measure_that_is_the_same_for_all_heads_has_no_correlation() -> None:
    assert tool._rho([1, 1, 1], [1, 2, 3]) is None
    assert tool._rho([1, 2, 2], [5, 7, 6]) == pytest.approx(0.8660254)  # ranks 1, 2½, 2½ and 1, 3, 2


def test_the_figure_has_the_curve_and_the_gates_of_each_seed() -> None:
    curve, *gates = tool.draw([seed(0), seed(4)]).axes
    assert [list(line.get_xdata()) for line in curve.lines[::2]] == [[1, 2, 3], [1, 2, 3]]
    assert [ax.get_title() for ax in gates] == ["gates, seed 0", "gates, seed 4"]
    (image,) = gates[0].images
    assert image.get_array().tolist() == [[1.0, 0.7, 0.8], [0.9, 0.0, 0.2], [0.5, 0.0, 0.0]]
    assert [label.get_text() for label in gates[0].get_yticklabels()] == ["2: 0.30", "1: 0.20", "0: 0.10"]


def test_a_training_with_gates_is_a_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its arguments mean what they should: so many heads, the penalty, a start from the model without gates."""
    calls: list[list[str]] = []

    def fit(folder: Path, arguments: list[str]) -> Path:
        calls.append(arguments)
        raise SystemExit

    monkeypatch.setattr(tool, "fit", fit)
    with pytest.raises(SystemExit):
        tool.gated(tmp_path, 0.02, 6, tmp_path / "best.ckpt", ["--seed_everything", "3"])
    arguments = calls[0]
    files = [Path(arguments[place + 1]) for place, word in enumerate(arguments) if word == "-c"]
    pairs = zip(arguments[4::2], arguments[5::2], strict=True)
    config = parse(*files, options=tuple(f"{name}={value}" for name, value in pairs))
    attention = config["model"]["decoder"]["init_args"]["attention"]["init_args"]
    assert (attention["heads"], attention["gates"]["class_path"]) == (6, "caption.attention.HeadGates")
    (term,) = config["model"]["objective"]["init_args"]["terms"]
    assert term["init_args"]["weight"] == 0.02
    assert config["model"]["warm_start"] == str(tmp_path / "best.ckpt")
    assert config["model"]["encoder_learning_rate"] is None
    assert config["seed_everything"] == 3
