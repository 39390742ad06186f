"""Roles of self-attention heads, planted: positional ones, one that looks at itself, one for rare words."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from caption.analysis.replay import words_alone
from caption.analysis.self_attention import RegionMaps
from caption.analysis.self_attention.roles import POSITIONAL, region_roles, word_roles
from caption.box import Box
from caption.result import Caption

BOX = Box(0, 0, 1, 1)


def regions(*heads: np.ndarray, grid: tuple[int, int] = (3, 4)) -> RegionMaps:
    layer = np.stack(heads).astype(np.float32)
    return RegionMaps((layer,), (np.ones(len(heads), np.float32),), grid, BOX, BOX)


def looking(down: int, across: int, rows: int = 3, cols: int = 4) -> np.ndarray:
    """(L, L): each region looks at the one so far away, at 0.7; at all alike where there is none."""
    weights = np.full((rows * cols, rows * cols), 1 / (rows * cols))
    for row in range(rows):
        for col in range(cols):
            if 0 <= row + down < rows and 0 <= col + across < cols:
                query = row * cols + col
                weights[query] = 0.3 / (rows * cols - 1)
                weights[query, (row + down) * cols + col + across] = 0.7
    return weights


def test_heads_of_one_neighbour_are_positional():
    heads = [looking(0, -1), looking(1, 1), looking(0, 0), looking(0, 2), np.full((12, 12), 1 / 12)]
    roles = region_roles([regions(*heads), regions(*heads)])
    assert roles.labels == tuple(f"layer 0 head {m}" for m in range(5))
    assert roles.queries == 24
    # Regions without this neighbour do not count, as the first column has none to its left.
    assert roles.positional[:2].tolist() == [1, 1]
    assert roles.neighbour[:2] == ((0, -1), (1, 1))
    assert roles.is_positional.tolist() == [True, True, False, False, False]
    # Where it has no neighbour, a head looks at all twelve alike, itself among them.
    assert roles.at_itself.tolist() == pytest.approx([1 / 4 / 12, 6 / 12 / 12, 1, 2 / 4 / 12, 1 / 12])
    assert roles.confidence[[0, 2]].tolist() == pytest.approx([(0.7 * 9 + 3 / 12) / 12, 0.7])
    spread = -0.7 * math.log(0.7) - 0.3 * math.log(0.3 / 11)
    assert roles.entropy[[2, 4]].tolist() == pytest.approx([spread, math.log(12)])
    assert np.isnan(roles.rare).all()
    lines = [" ".join(line.split()) for line in str(roles).splitlines()]
    assert lines[0] == "24 queries confidence entropy itself neighbour there rare role"
    assert re.fullmatch(r"layer 0 head 0 0\.55 1\.\d\d 0\.02 \+0, -1 1\.00 – positional", lines[1])
    assert not lines[3].endswith("positional")


@pytest.mark.parametrize(("moved", "positional"), [(1, True), (2, False)])
def test_ninety_percent_are_needed(moved: int, positional: bool):
    """A head over 2 x 8 regions: 14 have a neighbour to the left, so 13 are 0.93 and 12 are 0.86 of them."""
    assert POSITIONAL == 0.9
    head = looking(0, -1, 2, 8)
    head[1 : 1 + moved] = np.eye(16)[12]
    roles = region_roles([regions(head, grid=(2, 8))])
    assert roles.positional[0] == pytest.approx((14 - moved) / 14)
    assert roles.is_positional.tolist() == [positional]


def words(said: list[str], *heads: list[int]) -> Caption:
    """Each head looks at the given place at each step."""
    layer = np.stack([np.eye(len(said), dtype=np.float32)[places] for places in heads])
    return replace(words_alone(said), self_attention=(layer,))


def test_words_look_at_the_word_before_or_at_the_rarest():
    # Fed: (start) a zebra a red, and (start) a.
    long = words(["a", "zebra", "a", "red", "a"], [0, 0, 1, 2, 3], [0, 1, 2, 2, 2], [0, 1, 2, 3, 4])
    short = words(["a", "red"], [0, 0], [0, 1], [0, 1])
    nothing = words_alone([])
    counts = {"a": 100, "red": 10}
    roles = word_roles([long, nothing, short], counts)
    assert roles.queries == 7
    assert roles.neighbour == ((0, -1),) * 3
    # The first step of a caption has no word before it.
    assert roles.positional.tolist() == [1, 1 / 5, 0]
    assert roles.at_itself.tolist() == pytest.approx([2 / 7, 5 / 7, 1])
    # Two words or more have been fed at steps 2, 3 and 4, and zebra, which has no count, is at 2.
    assert roles.rare.tolist() == pytest.approx([1 / 3, 1, 1 / 3])
    # Counted in the captions: a 4, red 2, zebra 1.
    assert word_roles([long, short]).rare.tolist() == roles.rare.tolist()
    assert word_roles([long], {"zebra": 100, "a": 1, "red": 5}).rare.tolist() == pytest.approx([1 / 3, 0, 0])


def test_a_head_is_syntactic_if_it_finds_the_related_word_where_its_place_changes():
    """Said: a b v, and a b to v; v is related to b, which is fed at 2. Of three such captions, two have it where v is
    said: a head that looks there always is right in two thirds, the offset that is the most frequent."""
    near, far = ["a", "b", "v"], ["a", "b", "to", "v"]

    def syntax(said: list[str]) -> dict[str, list[tuple[int, int]]]:
        return {"subject": [(said.index("v"), said.index("b"))], "none": []}

    captions = [
        words(said, [0, 0, 2, 2][: len(said)], [0, 1, 2, 3][: len(said)]) for said in (near, near, far)
    ]
    roles = word_roles(captions, syntax=syntax)
    assert roles.related["subject"].tolist() == pytest.approx([1, 2 / 3])
    assert roles.baselines["subject"] == pytest.approx(2 / 3)
    assert roles.is_syntactic["subject"].tolist() == [True, False]
    assert np.isnan(roles.related["none"]).all()
    assert not roles.is_syntactic["none"].any()
    lines = str(roles).splitlines()
    assert "subject (offset: 0.67)" in lines[0]
    assert [line.endswith("subject") for line in lines[1:3]] == [True, False]


def test_what_cannot_be_measured_is_said():
    with pytest.raises(ValueError, match="need the maps of one photo or more"):
        region_roles([])
    with pytest.raises(ValueError, match="all of one model on one grid"):
        region_roles([regions(looking(0, 0)), regions(looking(0, 0, 4, 3), grid=(4, 3))])
    with pytest.raises(ValueError, match="these captions have none"):
        word_roles([words_alone([])])
