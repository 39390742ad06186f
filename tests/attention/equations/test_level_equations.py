"""Attention on several levels against its equations."""

from __future__ import annotations

import numpy as np
import torch
from helpers.loops import additive, close, random_views, run, softmax, weighted

from caption.attention import AdditiveScore, AttentionViaAttention, HierarchicalAttention


def test_hierarchical() -> None:
    """Yang et al. 2016, section 2.2, with blocks of cells in the place of sentences of words. Blocks of two by two on a
    grid of three by three: those at the right and at the bottom are smaller."""
    rows, cols, block = 3, 3, 2
    members: dict[tuple[int, int], list[int]] = {}
    for row in range(rows):
        for col in range(cols):
            members.setdefault((row // block, col // block), []).append(row * cols + col)
    assert [len(cells) for cells in members.values()] == [4, 2, 2, 1]
    done = run(HierarchicalAttention(AdditiveScore(6), AdditiveScore(5), block), grids=((rows, cols),))
    p = done.p
    for case in done.cases():
        hidden, within, vectors = case.hidden[0], [], []
        for cells in members.values():
            scores = [additive(p, "cell_score", case.regions[i], hidden) for i in cells]
            within.append(softmax(scores, case.real[cells]))
            vectors.append(weighted(within[-1], case.regions[cells]))
        blocks = softmax([additive(p, "block_score", vector, hidden) for vector in vectors])
        weights = np.zeros(rows * cols)
        for number, cells in enumerate(members.values()):
            for place, i in enumerate(cells):
                weights[i] = blocks[number] * within[number][place]
        close(case.maps[0]["blocks"], blocks)
        close(case.weights[0], weights)
        close(case.context[0], weighted(blocks, vectors))


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


def test_attention_via_attention() -> None:
    """Fine weights are proportional to exp(e_i) β_parent(i), β the softmax over the coarse grid."""
    # 4 by 6 cells over 2 by 3: rows 0 and 1 lie under coarse row 0, columns 0 and 1 under coarse column 0.
    done = run(AttentionViaAttention(AdditiveScore(6), AdditiveScore(5)), grids=((4, 6), (2, 3)))
    p = done.p
    for case in done.cases():
        hidden, (coarse, coarse_real) = case.hidden[0], case.others[0]
        beta = softmax([additive(p, "coarse_score", b, hidden) for b in coarse], coarse_real)
        shares = []
        for i, a in enumerate(case.regions):
            row, col = i // 6, i % 6
            parent = (row // 2) * 3 + col // 2
            shares.append(np.exp(additive(p, "fine_score", a, hidden)) * beta[parent] * case.real[i])
        weights = np.array(shares) / sum(shares)
        close(case.maps[0]["coarse"], beta)
        close(case.weights[0], weights)
        close(case.context[0], np.concatenate([weighted(weights, case.regions), weighted(beta, coarse)]))


def test_a_fine_cell_belongs_to_the_coarse_cell_under_its_middle() -> None:
    # Middles of 3 columns are 1/6, 1/2 and 5/6 of the width: with 2 coarse columns the second lies on the edge, and
    # belongs to the right one.
    done = run(AttentionViaAttention(AdditiveScore(6), AdditiveScore(5)), grids=((1, 3), (1, 2)))
    assert done.memory.parent[0].tolist() == [0, 1, 1]
    done = run(AttentionViaAttention(AdditiveScore(6), AdditiveScore(5)), grids=((3, 1), (2, 1)))
    assert done.memory.parent[0].tolist() == [0, 1, 1]
