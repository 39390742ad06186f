"""An intervention as a table: two captions, every word's probability, the steps that were changed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from helpers.captions import caption_of

from caption.analysis.interventions import Force, Intervention, LogProbs


@pytest.fixture
def html_result() -> Intervention:
    return Intervention(
        (Force((0, 0), at=1),),
        caption_of(["red", "dog"]),
        caption_of(["red", "<b>", "runs"]),
        LogProbs(("red", "dog", "<end>"), np.array([-0.001, -1.0, -0.3]), np.array([-0.001, -np.inf, -0.4])),
        LogProbs(("red", "<b>", "runs"), np.array([-0.1, -4.0, -2.0]), np.array([-0.02, -0.5, -2.0])),
        steps=(1, 3),
    )


def rows(table: str) -> list[list[str]]:
    """The text of every cell."""
    return [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    ]


def test_it_holds_both_captions_and_four_rows_of_numbers(html_result: Intervention):
    assert rows(html_result._repr_html_()) == [
        ["as it is", "red", "dog", "&lt;end&gt;", "sum"],
        ["log p", "0.00", "−1.00", "−0.30", "−1.30"],
        ["under the changes", "0.00", "−∞", "−0.40", "−∞"],
        ["changed", "red", "<u>&lt;b&gt;</u>", "runs", "sum"],
        ["log p", "−0.02", "−0.50", "−2.00", "−2.52"],
        ["without the changes", "−0.10", "−4.00", "−2.00", "−6.10"],
    ]
    assert "&#x27;dog&#x27; becomes &#x27;&lt;b&gt;&#x27;" in html_result._repr_html_()


def test_the_more_a_number_moved_the_darker_it_is(html_result: Intervention):
    table = html_result._repr_html_()
    shades = [[float(s) for s in re.findall(r"127, 14, ([\d.]+)\)", row)] for row in table.split("</tr>")]
    assert shades[1] == shades[4] == [0, 0, 0]
    assert shades[2] == [0, 0.7, pytest.approx(0.7 * (1 - np.exp(-0.1)), abs=0.01)]
    assert shades[5] == [pytest.approx(0.7 * (1 - np.exp(-0.08)), abs=0.01), pytest.approx(0.68, abs=0.01), 0]
