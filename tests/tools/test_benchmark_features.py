"""tools/benchmark_features.py: its document and its ratios."""

from __future__ import annotations

from pathlib import Path

import pytest
from downloads import tool

TOOL = tool("benchmark_features")
DOCUMENT = Path(__file__).parents[2] / "docs" / "features.md"


def test_the_table_takes_the_place_of_the_last_one_and_nothing_else(tmp_path: Path) -> None:
    document = tmp_path / "features.md"
    document.write_text(f"above\n{TOOL['BEGIN']}\nold\n{TOOL['END']}\nbelow\n", encoding="utf-8")
    for text in ("| longer table |", "new"):
        TOOL["put_into"](document, text)
    assert document.read_text(encoding="utf-8") == f"above\n{TOOL['BEGIN']}\n\nnew\n\n{TOOL['END']}\nbelow\n"


def test_a_document_without_marks_is_unchanged(tmp_path: Path) -> None:
    document = tmp_path / "features.md"
    document.write_text("no marks")
    with pytest.raises(SystemExit, match="has not the two marks"):
        TOOL["put_into"](document, "new")
    assert document.read_text() == "no marks"


def test_the_document_of_the_repository_has_the_marks() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert text.count(TOOL["BEGIN"]) == text.count(TOOL["END"]) == 1
    assert text.index(TOOL["BEGIN"]) < text.index(TOOL["END"])


def test_shares_are_the_median_and_the_range() -> None:
    assert TOOL["share"]([0.9, 0.5, 1.2]) == "90% (50% to 120%)"


def test_a_table_names_machine_versions_and_load() -> None:
    import torch

    text = TOOL["report"]([("images/s", "7"), ("ratio", "1")], "load average 9.9")
    assert f"torch {torch.__version__}" in text
    assert "load average 9.9" in text
    assert text.endswith("| images/s | 7 |\n| ratio | 1 |")
