"""Several maps (heads, hops, queries, features, levels), a sentinel, and negative weights, against their equations."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers.loops import (
    Case,
    Vector,
    additive,
    bins,
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
from helpers.score_equations import SCORES, Weights

from caption import attention as library
from caption.attention import AdditiveScore, HierarchicalAttention, ParentWeightedAttention
from caption.attention.base import Query, QuerySizes
from caption.core.regions import Regions

Transcribed = tuple[Vector, dict[str, Any]]
HOPS, SIZE = 3, 6


def multi_head(p: Weights, case: Case) -> Transcribed:
    """head_m = softmax(Q^m K^mᵀ / √(A/M)) V^m; z = W_o [head_1; …; head_M] (Vaswani et al. 2017, section 3.2.2)."""
    query, width = linear(p, "queries", case.hidden[0]), SIZE // 2
    keys, values = ([linear(p, name, a) for a in case.regions] for name in ("keys", "values"))
    joined, maps = [], []
    for m in range(2):
        part = slice(m * width, (m + 1) * width)
        maps.append(softmax([dot(query[part], key[part]) / np.sqrt(width) for key in keys], case.real))
        read = weighted(maps[m], [value[part] for value in values])
        if "gates.weight" in p:  # min(1, max(0, σ(log odds) (ζ - γ) + γ)) with γ = -0.1, ζ = 1.1
            read = min(1, max(0, sigmoid(10 * p["gates.weight"][m]) * 1.2 - 0.1)) * read
        joined.append(read)
    return linear(p, "output", np.concatenate(joined)), {"heads": maps, "weights": sum(maps) / 2}


def multi_hop(p: Weights, case: Case) -> Transcribed:
    """u_{n+1} = u_n + W z_n (Sukhbaatar et al. 2015, section 2.2); the context is what the hops have added."""
    u, maps = case.hidden[0], []
    for _ in range(HOPS):
        maps.append(softmax([additive(p, "score", a, u) for a in case.regions], case.real))
        u = u + linear(p, "read_into_query", weighted(maps[-1], case.regions))
    return u - case.hidden[0], {"hops": maps, "weights": sum(maps) / HOPS}


def memory_network(p: Weights, case: Case) -> Transcribed:
    """Sukhbaatar et al. 2015, eqs. 1 to 4: α = softmax(uᵀ A^n x), o = Σ α C^n x. Adjacent tying: u' = u + o, with
    A^{n+1} = C^n; layer-wise (section 2.2): A and C are the same at every hop, and u' = H u + o."""
    layer_wise = "hop.weight" in p
    u, maps = linear(p, "query", case.hidden[0]), []
    for n in range(HOPS):
        a, c = (0, 1) if layer_wise else (n, n + 1)
        maps.append(softmax([dot(u, linear(p, f"embeddings.{a}", x)) for x in case.regions], case.real))
        read = weighted(maps[-1], [linear(p, f"embeddings.{c}", x) for x in case.regions])
        u = (linear(p, "hop", u) if layer_wise else u) + read
    assert not any("bias" in name for name in p)
    assert f"embeddings.{2 if layer_wise else HOPS + 1}.weight" not in p
    return u, {"hops": maps, "weights": sum(maps) / HOPS}


def structured(p: Weights, case: Case) -> Transcribed:
    """A = softmax(W_2 tanh(W_1 aᵀ)), M = A a (Lin et al. 2017, eqs. 6 and 7); z = W_o vec(M) + b."""
    assert "region.bias" not in p
    compared = [np.tanh(linear(p, "region", a)) for a in case.regions]
    maps = [softmax([dot(row, x) for x in compared], case.real) for row in p["energy.weight"]]
    read = np.concatenate([weighted(weights, case.regions) for weights in maps])
    return linear(p, "output", read), {"queries": maps, "weights": sum(maps) / 3}


def feature_wise(p: Weights, case: Case) -> Transcribed:
    """e_i = W tanh(U a_i + b + V h), α_·d = softmax over i of e_i,d, z_d = Σ_i α_i,d a_i,d."""
    query = linear(p, "query", case.hidden[0])
    scores = [linear(p, "energy", np.tanh(linear(p, "region", a) + query)) for a in case.regions]
    maps = [softmax([score[d] for score in scores], case.real) for d in range(len(case.regions[0]))]
    context = np.array([dot(weights, case.regions[:, d]) for d, weights in enumerate(maps)])
    return context, {"features": maps, "weights": sum(maps) / len(maps)}


def channels_and_regions(p: Weights, case: Case, channels_first: bool) -> Transcribed:
    """β_c = softmax(w · tanh(u v_c + b + W h)), v_c the mean of channel c (Chen et al. 2017, section 3.2); α either of
    the regions D β ∘ a_i ("C-S"), or before β, with v = Σ_i α_i a_i ("S-C", section 3.3); z = D β ∘ Σ_i α_i a_i."""
    hidden, regions, size = case.hidden[0], case.regions, len(case.regions[0])

    def channel_weights(means: Vector) -> Vector:
        inner = [
            linear(p, "channels.channel", np.array([mean])) + linear(p, "channels.query", hidden)
            for mean in means
        ]
        return softmax([dot(p["channels.energy.weight"][0], np.tanh(x)) for x in inner])

    def region_weights(vectors: Vector) -> Vector:
        return softmax([additive(p, "score", a, hidden) for a in vectors], case.real)

    if channels_first:
        channels = channel_weights(weighted(case.real / sum(case.real), regions))
        weights = region_weights(size * channels * regions)
    else:
        weights = region_weights(regions)
        channels = channel_weights(weighted(weights, regions))
    context = size * channels * weighted(weights, regions)
    return context, {"channels": channels, "regions": weights, "weights": weights}


def sentinel(p: Weights, case: Case, score: str) -> Transcribed:
    """Lu et al. 2017, section 2.3: s = σ(W_x x + W_h h[t-1]) tanh(c[t]); α̂ = softmax of the scores of the regions and
    of s, which is scored with the regions' w and W_g (eq. 12); the context is Σ_i α̂_i a_i + β s', with s' = W s + b of
    the regions' length and β the last of α̂."""
    gate = linear(p, "gate_from_word", case.word[0]) + linear(p, "gate_from_hidden", case.previous[0])
    vector = sigmoid(gate) * np.tanh(case.cell[0])
    keys = [*case.regions, linear(p, "key", vector)]
    scores = [SCORES[score][1](p, "score", key, case.hidden[0]) for key in keys]
    weights = softmax(scores, [*case.real, True])
    context = weighted(weights, [*case.regions, linear(p, "value", vector)])
    return context, {"regions": weights[:-1], "sentinel": weights[-1:], "weights": weights[:-1]}


def compositional(
    p: Weights, case: Case, gate: str, affinity_scale: float, distance_scale: float
) -> Transcribed:
    """tanh(α_s q · k) ∘ σ(β_s (n - mean n)), ∘ 2σ(β_s n) or ∘ σ(β_s n), n = -‖q - k‖₁ (Tay et al. 2019)."""
    q = linear(p, "query", case.hidden[0])
    keys = [linear(p, "key", a) for a in case.regions]
    n = [-sum(abs(q[i] - k[i]) for i in range(SIZE)) for k in keys]
    mean = dot(n, case.real) / sum(case.real)
    weights = []
    for k, near, real in zip(keys, n, case.real, strict=True):
        g = {
            "centred": sigmoid(distance_scale * (near - mean)),
            "doubled": 2 * sigmoid(distance_scale * near),
            "plain": sigmoid(distance_scale * near),
        }[gate]
        weights.append(np.tanh(affinity_scale * dot(q, k)) * g * real)
    return weighted(weights, case.regions), {"weights": weights}


def hierarchical(p: Weights, case: Case, score: str) -> Transcribed:
    """Yang et al. 2016, section 2.2, with blocks of cells in the place of sentences of words. Blocks of two by two on a
    grid of three by three: those at the right and at the bottom are smaller."""
    equation, within, vectors = SCORES[score][1], [], []
    members = [[0, 1, 3, 4], [2, 5], [6, 7], [8]]
    for cells in members:
        of_cells = [equation(p, "cell_score", case.regions[i], case.hidden[0]) for i in cells]
        within.append(softmax(of_cells, case.real[cells]))
        vectors.append(weighted(within[-1], case.regions[cells]))
    blocks = softmax([equation(p, "block_score", vector, case.hidden[0]) for vector in vectors])
    weights = np.zeros(9)
    for cells, of_block, of_cells in zip(members, blocks, within, strict=True):
        weights[cells] = of_block * of_cells
    return weighted(blocks, vectors), {"blocks": blocks, "cells": weights, "weights": weights}


def via(p: Weights, case: Case, score: str) -> Transcribed:
    """The coarse level with the query q, the fine level with [q; c_coarse]; the result is [c_fine; c_coarse]. Keys of
    dot products are as long as the joined query."""
    equation, q, (coarse, coarse_real) = SCORES[score][1], case.hidden[0], case.others[0]
    beta = softmax([equation(p, "coarse_score", b, q) for b in coarse], coarse_real)
    c_coarse = weighted(beta, coarse)
    joined = np.concatenate([q, c_coarse])
    alpha = softmax([equation(p, "fine_score", a, joined) for a in case.regions], case.real)
    context = np.concatenate([weighted(alpha, case.regions), c_coarse])
    return context, {"fine": alpha, "coarse": beta, "weights": alpha}


def parent_weighted(p: Weights, case: Case) -> Transcribed:
    """Nallapati et al. 2016, section 2.4: P(i) = P_fine(i) P_coarse(parent(i)) / Σ_k P_fine(k) P_coarse(parent(k)); 4
    by 6 cells over 2 by 3: rows 0 and 1 lie under coarse row 0, columns 0 and 1 under coarse column 0."""
    hidden, (coarse, coarse_real) = case.hidden[0], case.others[0]
    beta = softmax([additive(p, "coarse_score", b, hidden) for b in coarse], coarse_real)
    own = softmax([additive(p, "fine_score", a, hidden) for a in case.regions], case.real)
    shares = np.array([own[i] * beta[(i // 6 // 2) * 3 + i % 6 // 2] for i in range(len(case.regions))])
    weights = shares / sum(shares)
    context = np.concatenate([weighted(weights, case.regions), weighted(beta, coarse)])
    return context, {"fine": weights, "coarse": beta, "weights": weights}


ROOT = float(np.sqrt(SIZE))
MECHANISMS: dict[str, tuple[Any, ...]] = {
    "multi-head": (lambda: library.MultiHeadAttention(2, SIZE), multi_head),
    "gated heads": (
        lambda: library.MultiHeadAttention(2, SIZE, library.HeadGates(stretch=0.1)),
        multi_head,
    ),
    "multi-hop": (lambda: library.MultiHopAttention(AdditiveScore(6), HOPS), multi_hop),
    "adjacent": (lambda: library.MemoryNetworkAttention(HOPS, SIZE, "adjacent"), memory_network),
    "layer-wise": (lambda: library.MemoryNetworkAttention(HOPS, SIZE, "layer-wise"), memory_network),
    "structured": (lambda: library.StructuredAttention(queries=3, size=SIZE), structured),
    "feature-wise": (lambda: library.FeatureWiseAttention(SIZE), feature_wise),
    "C-S": (
        lambda: library.ChannelSpatialAttention(AdditiveScore(6), size=7),
        partial(channels_and_regions, channels_first=True),
    ),
    "S-C": (
        lambda: library.SpatialChannelAttention(AdditiveScore(6), size=7),
        partial(channels_and_regions, channels_first=False),
    ),
    **{
        f"sentinel, {score}": (
            lambda score=score: library.SentinelAttention(SCORES[score][0]()),
            partial(sentinel, score=score),
        )
        for score in ("additive", "scaled dot")
    },
    "centred": (
        lambda: library.CompositionalDeAttention(SIZE, "centred"),
        partial(compositional, gate="centred", affinity_scale=1 / ROOT, distance_scale=1 / ROOT),
    ),
    "doubled": (
        lambda: library.CompositionalDeAttention(SIZE, "doubled"),
        partial(compositional, gate="doubled", affinity_scale=1 / ROOT, distance_scale=1 / SIZE),
    ),
    "plain": (
        lambda: library.CompositionalDeAttention(SIZE, "plain"),
        partial(compositional, gate="plain", affinity_scale=1 / ROOT, distance_scale=1 / SIZE),
    ),
    **{
        f"hierarchical, {score}": (
            lambda score=score: HierarchicalAttention(SCORES[score][0](), SCORES[score][0](), 2),
            partial(hierarchical, score=score),
            ((3, 3),),
        )
        for score in ("additive", "feed-forward, two layers")
    },
    **{
        f"via attention, {score}": (
            lambda score=score: library.AttentionViaAttention(SCORES[score][0](), SCORES[score][0]()),
            partial(via, score=score),
            ((3, 4), (2, 3)),
        )
        for score in ("additive", "dot")
    },
    "parent-weighted": (
        lambda: ParentWeightedAttention(AdditiveScore(6), AdditiveScore(5)),
        parent_weighted,
        ((4, 6), (2, 3)),
    ),
    "scaled": (
        lambda: library.CompositionalDeAttention(SIZE, "centred", 0.3, 0.7),
        partial(compositional, gate="centred", affinity_scale=0.3, distance_scale=0.7),
    ),
}
"""A mechanism, its equation, and the grids unless they are one of 2 by 3."""


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("name", MECHANISMS)
def test_maps_context_and_gradients_are_those_of_the_equations(name: str, masked: bool) -> None:
    make, equation, *grids = MECHANISMS[name]
    check_transcription(run(make(), grids=grids[0] if grids else ((2, 3),), masked=masked), equation)


def test_a_hidden_sentinel_leaves_all_weight_to_the_regions() -> None:
    """With dropout, each step of training hides it with that probability, and each hypothesis by itself."""
    torch.manual_seed(0)
    attention = library.SentinelAttention(AdditiveScore(6), dropout=0.25)
    attention.build((4,), QuerySizes(5, 3))
    memory = attention.project((Regions(torch.randn(2, 6, 4), (2, 3)),))
    query = Query(*(torch.randn(2, 500, size) for size in (5, 5, 3, 5)))
    trained = attention.train()(query, memory).maps
    shown = attention.eval()(query, memory).maps

    hidden = trained.sentinel == 0
    assert hidden.float().mean() == pytest.approx(0.25, abs=0.04)
    assert not torch.equal(hidden[0], hidden[1])
    over_regions = shown.regions / shown.regions.sum(-1, keepdim=True)
    torch.testing.assert_close(trained.regions, torch.where(hidden, over_regions, shown.regions))
    torch.testing.assert_close(trained.sentinel, torch.where(hidden, 0.0, shown.sentinel))
    assert (shown.sentinel > 0).all()


# -- levels -------------------------------------------------------------------------------------------------------


def test_a_block_that_is_masked_whole_gets_nothing() -> None:
    mask = torch.tensor([[True, True, False, True, True, False], [True] * 6])
    view = random_views([(2, 3)])[0]._replace(mask=mask)
    output = run(HierarchicalAttention(AdditiveScore(6), AdditiveScore(5), 2), views=(view,)).outputs[0]
    close(output.maps.blocks[0], [[1.0, 0.0]] * 2)
    close(output.maps.cells[0][:, [2, 5]], np.zeros((2, 2)))
    assert not torch.isnan(output.context).any()


@pytest.mark.parametrize("grids", [((1, 3), (1, 2)), ((3, 1), (2, 1))])
def test_a_fine_cell_belongs_to_the_coarse_cell_under_its_middle(grids: Any) -> None:
    """Middles of 3 columns are 1/6, 1/2 and 5/6 of the width: with 2 coarse columns the second lies on the edge, and
    belongs to the right one."""
    done = run(ParentWeightedAttention(AdditiveScore(6), AdditiveScore(5)), grids=grids)
    assert done.memory.parent[0].tolist() == [0, 1, 1]


def levels(p: Weights, hidden: Vector, views: list[tuple[Any, Any]]) -> Transcribed:
    """Each level with a softmax of its own; contexts concatenated (Jetley et al. 2018, section 3)."""
    contexts, maps = [], {}
    for number, (vectors, real) in enumerate(views):
        scores = [additive(p, f"scores.{number}", a, hidden) for a in vectors]
        maps[f"level_{number}"] = softmax(scores, real)
        contexts.append(weighted(maps[f"level_{number}"], vectors))
    return np.concatenate(contexts), {**maps, "weights": maps["level_0"]}


def test_a_pyramid_has_any_number_of_levels() -> None:
    fine, coarse = random_views([(3, 4), (2, 2)])
    attention = library.PyramidAttention([AdditiveScore(6), AdditiveScore(5), AdditiveScore(5)])
    assert attention.map_views == {"level_0": 0, "level_1": 1, "level_2": 2}
    done = run(attention, views=(fine, coarse, coarse._replace(vectors=coarse.vectors.flip(1))))
    check_transcription(
        done, lambda p, case: levels(p, case.hidden[0], [(case.regions, case.real), *case.others])
    )


@pytest.mark.parametrize("grid", [(4, 8), (3, 5)], ids=str)
def test_pyramid_attention_over_pooled_bins(grid: tuple[int, int]) -> None:
    """The grid, then the means of 2×2 bins and of one (He et al. 2015, section 2.2), each with a softmax of its own
    over the bins that have a real region."""
    rows, cols = grid

    def pooled(p: Weights, case: Case) -> Transcribed:
        views = [(case.regions, case.real)]
        for n in (2, 1):
            cells = bins(grid, n, case.real)
            means = [sum(case.regions[one], np.zeros(4)) / max(len(one), 1) for one in cells]
            views.append((means, [bool(one) for one in cells]))
        return levels(p, case.hidden[0], views)

    mask = torch.ones(2, rows, cols, dtype=torch.bool)
    mask[0, : -(-rows // 2), : -(-cols // 2)] = False  # the whole of the first bin
    (view,) = random_views([grid])
    for real in (view.mask, mask.flatten(1)):
        attention = library.PooledPyramidAttention(
            [AdditiveScore(6), AdditiveScore(5), AdditiveScore(6)], (2, 1)
        )
        done = run(attention, views=(view._replace(mask=real),))
        check_transcription(done, pooled)
    assert not done.outputs[0].maps.level_1[0, :, 0].any()
