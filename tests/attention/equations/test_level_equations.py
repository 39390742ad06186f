"""Attention on several levels, and several looks at one, against their equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.loops import (
    Case,
    Vector,
    additive,
    check_transcription,
    close,
    dot,
    linear,
    random_views,
    run,
    sigmoid,
    softmax,
    weighted,
)

from caption.attention import (
    AdditiveScore,
    AttentionViaAttention,
    DotScore,
    FeedForwardScore,
    FollowingWindow,
    HierarchicalAttention,
    LocalGlobalAttention,
    ParentWeightedAttention,
    PooledPyramidAttention,
    PredictedWindow,
    PyramidAttention,
    Score,
)

Parameters = dict[str, np.ndarray]


def two_additive() -> tuple[Score, Score]:
    return AdditiveScore(6), AdditiveScore(5)


# -- groups --------------------------------------------------------------------------------------------------------


def learned(p: Parameters, name: str, a: Vector, h: Vector) -> float:
    """u · tanh(W a + b): the learned queries of Yang et al. 2016, eqs. 5, 6, 8 and 9."""
    return dot(p[f"{name}.query.weight"][0], np.tanh(linear(p, f"{name}.region", a)))


@pytest.mark.parametrize(
    ("scores", "equation"),
    [(two_additive(), additive), ((FeedForwardScore(6), FeedForwardScore(5)), learned)],
    ids=["additive", "learned queries"],
)
def test_hierarchical(scores: tuple[Score, Score], equation: Any) -> None:
    """Yang et al. 2016, section 2.2, with blocks of cells in the place of sentences of words. Blocks of two by two on a
    grid of three by three: those at the right and at the bottom are smaller."""
    rows, cols, block = 3, 3, 2
    members: dict[tuple[int, int], list[int]] = {}
    for row in range(rows):
        for col in range(cols):
            members.setdefault((row // block, col // block), []).append(row * cols + col)
    assert [len(cells) for cells in members.values()] == [4, 2, 2, 1]

    def hierarchical(p: Parameters, case: Case) -> tuple[Vector, dict[str, Any]]:
        hidden, within, vectors = case.hidden[0], [], []
        for cells in members.values():
            of_cells = [equation(p, "cell_score", case.regions[i], hidden) for i in cells]
            within.append(softmax(of_cells, case.real[cells]))
            vectors.append(weighted(within[-1], case.regions[cells]))
        blocks = softmax([equation(p, "block_score", vector, hidden) for vector in vectors])
        weights = np.zeros(rows * cols)
        for number, cells in enumerate(members.values()):
            for place, i in enumerate(cells):
                weights[i] = blocks[number] * within[number][place]
        return weighted(blocks, vectors), {"blocks": blocks, "cells": weights, "weights": weights}

    check_transcription(run(HierarchicalAttention(*scores, block), grids=((rows, cols),)), hierarchical)


def test_a_block_that_is_masked_whole_gets_nothing() -> None:
    view = random_views([(2, 3)])[0]
    mask = torch.tensor([[True, True, False, True, True, False], [True] * 6])
    done = run(
        HierarchicalAttention(AdditiveScore(6), AdditiveScore(5), 2), views=(view._replace(mask=mask),)
    )
    output = done.outputs[0]
    close(output.maps.blocks[0], [[1.0, 0.0]] * 2)
    close(output.maps.cells[0][:, [2, 5]], np.zeros((2, 2)))
    assert not torch.isnan(output.context).any()


# -- two levels ----------------------------------------------------------------------------------------------------


def dot_product(p: Parameters, name: str, a: Vector, h: Vector) -> float:
    return dot(h, linear(p, f"{name}.key", a))


@pytest.mark.parametrize(
    ("scores", "equation"),
    [(two_additive(), additive), ((DotScore(), DotScore()), dot_product)],
    ids=["additive", "dot products, whose keys are as long as the joined query"],
)
def test_attention_via_attention(scores: tuple[Score, Score], equation: Any) -> None:
    """The coarse level with the query q, the fine level with [q; c_coarse]; the result is [c_fine; c_coarse]."""

    def via(p: Parameters, case: Case) -> tuple[Vector, dict[str, Any]]:
        q, (coarse, coarse_real) = case.hidden[0], case.others[0]
        beta = softmax([equation(p, "coarse_score", b, q) for b in coarse], coarse_real)
        c_coarse = weighted(beta, coarse)
        joined = np.concatenate([q, c_coarse])
        alpha = softmax([equation(p, "fine_score", a, joined) for a in case.regions], case.real)
        context = np.concatenate([weighted(alpha, case.regions), c_coarse])
        return context, {"fine": alpha, "coarse": beta, "weights": alpha}

    check_transcription(run(AttentionViaAttention(*scores), grids=((3, 4), (2, 3))), via)


def test_parent_weighted() -> None:
    """Nallapati et al. 2016, section 2.4: P(i) = P_fine(i) P_coarse(parent(i)) / Σ_k P_fine(k) P_coarse(parent(k))."""

    # 4 by 6 cells over 2 by 3: rows 0 and 1 lie under coarse row 0, columns 0 and 1 under coarse column 0.
    def parent_weighted(p: Parameters, case: Case) -> tuple[Vector, dict[str, Any]]:
        hidden, (coarse, coarse_real) = case.hidden[0], case.others[0]
        beta = softmax([additive(p, "coarse_score", b, hidden) for b in coarse], coarse_real)
        own = softmax([additive(p, "fine_score", a, hidden) for a in case.regions], case.real)
        shares = []
        for i in range(len(case.regions)):
            row, col = i // 6, i % 6
            shares.append(own[i] * beta[(row // 2) * 3 + col // 2])
        weights = np.array(shares) / sum(shares)
        context = np.concatenate([weighted(weights, case.regions), weighted(beta, coarse)])
        return context, {"fine": weights, "coarse": beta, "weights": weights}

    done = run(ParentWeightedAttention(*two_additive()), grids=((4, 6), (2, 3)))
    check_transcription(done, parent_weighted)


def test_a_fine_cell_belongs_to_the_coarse_cell_under_its_middle() -> None:
    # Middles of 3 columns are 1/6, 1/2 and 5/6 of the width: with 2 coarse columns the second lies on the edge, and
    # belongs to the right one.
    done = run(ParentWeightedAttention(*two_additive()), grids=((1, 3), (1, 2)))
    assert done.memory.parent[0].tolist() == [0, 1, 1]
    done = run(ParentWeightedAttention(*two_additive()), grids=((3, 1), (2, 1)))
    assert done.memory.parent[0].tolist() == [0, 1, 1]


# -- levels and looks side by side ---------------------------------------------------------------------------------


def test_pyramid_attention() -> None:
    """Each level with a softmax of its own; contexts concatenated (Jetley et al. 2018, section 3)."""

    def pyramid(p: Parameters, case: Case) -> tuple[Vector, dict[str, Any]]:
        contexts, maps = [], {}
        for number, (regions, real) in enumerate([(case.regions, case.real), *case.others]):
            scores = [additive(p, f"scores.{number}", a, case.hidden[0]) for a in regions]
            maps[f"level_{number}"] = softmax(scores, real)
            contexts.append(weighted(maps[f"level_{number}"], regions))
        return np.concatenate(contexts), {**maps, "weights": maps["level_0"]}

    check_transcription(run(PyramidAttention(two_additive()), grids=((3, 4), (2, 2))), pyramid)


def test_a_pyramid_has_any_number_of_levels() -> None:
    attention = PyramidAttention([AdditiveScore(6) for _ in range(3)])
    assert attention.view_count == 3
    assert attention.map_views == {"level_0": 0, "level_1": 1, "level_2": 2}
    fine, coarse = random_views([(2, 3), (1, 2)])
    done = run(attention, views=(fine, coarse, coarse))
    assert done.outputs[0].context.shape[-1] == 4 + 3 + 3
    assert not torch.equal(done.outputs[0].maps.level_1, done.outputs[0].maps.level_2)  # a score each


@pytest.mark.parametrize("grid", [(4, 8), (3, 5)], ids=str)
def test_pyramid_attention_over_pooled_bins(grid: tuple[int, int]) -> None:
    """The grid, then the means of 2×2 bins and of one (He et al. 2015, section 2.2), each with a softmax of its own
    over the bins that have a real region; contexts concatenated."""
    rows, cols = grid

    def pooled(p: Parameters, case: Case) -> tuple[Vector, dict[str, Any]]:
        levels = [(list(case.regions), list(case.real))]
        for n in (2, 1):
            means, present = [], []
            for i in range(n):
                for j in range(n):
                    cells = [
                        r * cols + c
                        for r in range(rows)
                        for c in range(cols)
                        if np.floor(i * rows / n) <= r < np.ceil((i + 1) * rows / n)
                        and np.floor(j * cols / n) <= c < np.ceil((j + 1) * cols / n)
                        and case.real[r * cols + c]
                    ]
                    means.append(
                        sum((case.regions[cell] for cell in cells), np.zeros(4)) / max(len(cells), 1)
                    )
                    present.append(bool(cells))
            levels.append((means, present))
        contexts, maps = [], {}
        for number, (vectors, present) in enumerate(levels):
            scores = [additive(p, f"scores.{number}", a, case.hidden[0]) for a in vectors]
            maps[f"level_{number}"] = softmax(scores, present)
            contexts.append(weighted(maps[f"level_{number}"], vectors))
        return np.concatenate(contexts), {**maps, "weights": maps["level_0"]}

    def attention() -> PooledPyramidAttention:
        return PooledPyramidAttention([AdditiveScore(6), AdditiveScore(5), AdditiveScore(6)], (2, 1))

    check_transcription(run(attention(), grids=(grid,)), pooled)
    view = random_views([grid])[0]
    mask = torch.ones(2, rows * cols, dtype=torch.bool).unflatten(-1, grid)
    mask[0, : -(-rows // 2), : -(-cols // 2)] = False  # the whole of the first bin
    done = run(attention(), views=(view._replace(mask=mask.flatten(1)),))
    assert not done.outputs[0].maps.level_1[0, :, 0].any()
    check_transcription(done, pooled)


def test_local_and_global() -> None:
    """[c_local; c_global]: Luong et al. 2015, eqs. 9 and 10 in two dimensions, and a softmax over everything."""
    rows, cols, reach = 3, 4, 1.0

    def both(p: Parameters, case: Case) -> tuple[Vector, dict[str, Any]]:
        h = case.hidden[0]
        inner = np.tanh(linear(p, "local.alignment.centre.0", h))
        centre = sigmoid(linear(p, "local.alignment.centre.2", inner)) * np.array([rows - 1, cols - 1])
        offsets = [np.array([i // cols, i % cols]) - centre for i in range(rows * cols)]
        inside = [bool(real and max(abs(x)) <= reach) for x, real in zip(offsets, case.real, strict=True)]
        assert 0 < sum(inside) < rows * cols
        local = softmax([additive(p, "local.score", a, h) for a in case.regions], inside)
        local = np.array(
            [w * np.exp(-dot(x, x) / (2 * (reach / 2) ** 2)) for w, x in zip(local, offsets, strict=True)]
        )
        everywhere = softmax([additive(p, "everywhere.score", a, h) for a in case.regions], case.real)
        context = np.concatenate([weighted(local, case.regions), weighted(everywhere, case.regions)])
        return context, {"looks": [local, everywhere], "weights": (local + everywhere) / 2}

    first, second = two_additive()
    attention = LocalGlobalAttention(first, PredictedWindow(reach, 3), second)
    assert not attention.properties.sums_to_one
    check_transcription(run(attention, grids=((rows, cols),)), both)


def test_the_window_follows_the_local_look_of_the_step_before() -> None:
    """Not the mean of both looks: the centre of a step is Σ_i α_i x_i of the window's α."""
    rows, cols = 3, 4
    first, second = two_additive()
    attention = LocalGlobalAttention(first, FollowingWindow(1.0), second)
    assert attention.properties.sums_to_one
    done = run(attention, steps=2, grids=((rows, cols),))
    for case in done.cases():
        local = case.maps[0]["looks"][0]
        centre = [dot(local, np.arange(rows * cols) // cols), dot(local, np.arange(rows * cols) % cols)]
        inside = [
            bool(case.real[i] and abs(i // cols - centre[0]) <= 1 and abs(i % cols - centre[1]) <= 1)
            for i in range(rows * cols)
        ]
        scores = [additive(done.p, "local.score", a, case.hidden[1]) for a in case.regions]
        close(case.maps[1]["looks"][0], softmax(scores, inside))
