"""Several maps (heads, hops, queries, features), a sentinel, and negative weights, against their equations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.loops import (
    Case,
    additive,
    check_transcription,
    close,
    dot,
    linear,
    run,
    sigmoid,
    softmax,
    weighted,
)

from caption.attention import (
    AdditiveScore,
    ChannelSpatialAttention,
    CompositionalDeAttention,
    FeatureWiseAttention,
    HeadGates,
    MemoryNetworkAttention,
    MultiHeadAttention,
    MultiHopAttention,
    ScaledDotScore,
    SentinelAttention,
    SpatialChannelAttention,
    StructuredAttention,
)
from caption.attention.base import Query, QuerySizes
from caption.errors import UserError
from caption.regions import Regions


@pytest.mark.parametrize("gated", [False, True])
def test_multi_head(gated: bool) -> None:
    """head_m = softmax(Q^m K^mᵀ / √(A/M)) V^m; z = W_o [head_1; …; head_M] (Vaswani et al. 2017, section 3.2.2)."""
    heads, size = 2, 6
    done = run(MultiHeadAttention(heads, size, HeadGates(stretch=0.1) if gated else None))
    p, width = done.p, size // heads
    for case in done.cases():
        query = linear(p, "queries", case.hidden[0])
        keys = [linear(p, "keys", a) for a in case.regions]
        values = [linear(p, "values", a) for a in case.regions]
        joined, maps = [], []
        for m in range(heads):
            part = slice(m * width, (m + 1) * width)
            scores = [dot(query[part], key[part]) / np.sqrt(width) for key in keys]
            maps.append(softmax(scores, case.real))
            read = weighted(maps[m], [value[part] for value in values])
            if gated:  # min(1, max(0, σ(log odds) (ζ - γ) + γ)) with γ = -0.1, ζ = 1.1
                gate = min(1, max(0, sigmoid(10 * p["gates.weight"][m]) * 1.2 - 0.1))
                read = gate * read
            joined.append(read)
        close(case.maps[0]["heads"], maps)
        close(case.weights[0], (maps[0] + maps[1]) / 2)
        close(case.context[0], linear(p, "output", np.concatenate(joined)))


def test_multi_hop() -> None:
    """u_{n+1} = u_n + W z_n (Sukhbaatar et al. 2015, section 2.2); the context is what the hops have added."""
    hops = 3
    done = run(MultiHopAttention(AdditiveScore(6), hops))
    p = done.p
    for case in done.cases():
        u, maps = case.hidden[0], []
        for _ in range(hops):
            scores = [additive(p, "score", a, u) for a in case.regions]
            maps.append(softmax(scores, case.real))
            u = u + linear(p, "read_into_query", weighted(maps[-1], case.regions))
        close(case.maps[0]["hops"], maps)
        close(case.weights[0], sum(maps) / hops)
        close(case.context[0], u - case.hidden[0])


def test_a_memory_network_with_adjacent_tying() -> None:
    """Sukhbaatar et al. 2015, eqs. 1 to 4: α = softmax(uᵀ A^n x), o = Σ α C^n x, u' = u + o, with A^{n+1} = C^n."""
    hops = 3

    def network(p: dict[str, np.ndarray], case: Case) -> tuple[np.ndarray, dict[str, Any]]:
        u, maps = linear(p, "query", case.hidden[0]), []
        for n in range(hops):
            a = [linear(p, f"embeddings.{n}", x) for x in case.regions]
            c = [linear(p, f"embeddings.{n + 1}", x) for x in case.regions]
            maps.append(softmax([dot(u, m) for m in a], case.real))
            u = u + weighted(maps[-1], c)
        return u, {"hops": maps, "weights": sum(maps) / hops}

    done = run(MemoryNetworkAttention(hops, 6, "adjacent"))
    assert len(done.attention.embeddings) == hops + 1
    check_transcription(done, network)


def test_a_memory_network_with_layer_wise_tying() -> None:
    """Section 2.2: A and C are the same at every hop, and u' = H u + o."""
    hops = 3

    def network(p: dict[str, np.ndarray], case: Case) -> tuple[np.ndarray, dict[str, Any]]:
        a = [linear(p, "embeddings.0", x) for x in case.regions]
        c = [linear(p, "embeddings.1", x) for x in case.regions]
        u, maps = linear(p, "query", case.hidden[0]), []
        for _ in range(hops):
            maps.append(softmax([dot(u, m) for m in a], case.real))
            u = linear(p, "hop", u) + weighted(maps[-1], c)
        return u, {"hops": maps, "weights": sum(maps) / hops}

    done = run(MemoryNetworkAttention(hops, 6, "layer-wise"))
    assert {name for name in done.p if "bias" in name} == set()
    check_transcription(done, network)


def test_structured() -> None:
    """A = softmax(W_2 tanh(W_1 aᵀ)), M = A a (Lin et al. 2017, eqs. 6 and 7); z = W_o vec(M) + b."""
    done = run(StructuredAttention(queries=3, size=6))
    p = done.p
    for case in done.cases():
        compared = [np.tanh(linear(p, "region", a)) for a in case.regions]
        maps = [softmax([dot(row, x) for x in compared], case.real) for row in p["energy.weight"]]
        close(case.maps[0]["queries"], maps)
        close(case.weights[0], sum(maps) / 3)
        read = np.concatenate([weighted(weights, case.regions) for weights in maps])
        close(case.context[0], linear(p, "output", read))


def test_feature_wise() -> None:
    """e_i = W tanh(U a_i + b + V h), α_·d = softmax over i of e_i,d, z_d = Σ_i α_i,d a_i,d."""
    done = run(FeatureWiseAttention(6))
    p = done.p
    for case in done.cases():
        scores = [
            linear(p, "energy", np.tanh(linear(p, "region", a) + linear(p, "query", case.hidden[0])))
            for a in case.regions
        ]
        features = len(case.regions[0])
        maps = [softmax([score[d] for score in scores], case.real) for d in range(features)]
        close(case.maps[0]["features"], maps)
        close(case.weights[0], sum(maps) / features)
        expected = [
            sum(maps[d][i] * case.regions[i][d] for i in range(len(case.regions))) for d in range(features)
        ]
        close(case.context[0], expected)


@pytest.mark.parametrize("channels_first", [True, False])
def test_channels_and_regions(channels_first: bool) -> None:
    """β_c = softmax(w · tanh(u v_c + b + W h)), v_c the mean of channel c (Chen et al. 2017, section 3.2); α either of
    the regions D β ∘ a_i ("C-S"), or before β, with v = Σ_i α_i a_i ("S-C", section 3.3); z = D β ∘ Σ_i α_i a_i."""
    kind = ChannelSpatialAttention if channels_first else SpatialChannelAttention
    done = run(kind(AdditiveScore(6), size=7))
    p = done.p
    for case in done.cases():
        hidden, regions = case.hidden[0], case.regions
        size = len(regions[0])
        if channels_first:
            real = [a for a, is_real in zip(regions, case.real, strict=True) if is_real]
            means = sum(real) / len(real)
            channels = channel_weights(p, means, hidden)
            scores = [additive(p, "score", size * channels * a, hidden) for a in regions]
            weights = softmax(scores, case.real)
        else:
            weights = softmax([additive(p, "score", a, hidden) for a in regions], case.real)
            channels = channel_weights(p, weighted(weights, regions), hidden)
        close(case.maps[0]["channels"], channels)
        close(case.weights[0], weights)
        close(case.context[0], size * channels * weighted(weights, regions))


def channel_weights(p: dict[str, np.ndarray], means: np.ndarray, hidden: np.ndarray) -> np.ndarray:
    scores = []
    for mean in means:
        from_channel = linear(p, "channels.channel", np.array([mean]))
        compared = np.tanh(from_channel + linear(p, "channels.query", hidden))
        scores.append(dot(p["channels.energy.weight"][0], compared))
    return softmax(scores)


@pytest.mark.parametrize("score", ["additive", "scaled dot"])
def test_sentinel(score: str) -> None:
    """Lu et al. 2017, section 2.3: s = σ(W_x x + W_h h[t-1]) tanh(c[t]); α̂ = softmax of the scores of the regions and
    of s, which is scored with the regions' w and W_g (eq. 12); the context is Σ_i α̂_i a_i + β s', with s' = W s + b of
    the regions' length and β the last of α̂."""

    def scaled_dot(p: dict[str, np.ndarray], name: str, a: np.ndarray, h: np.ndarray) -> float:
        return dot(linear(p, f"{name}.query", h), linear(p, f"{name}.key", a)) / np.sqrt(6)

    make, equation = {"additive": (AdditiveScore, additive), "scaled dot": (ScaledDotScore, scaled_dot)}[
        score
    ]
    done = run(SentinelAttention(make(6)))
    p = done.p
    for case in done.cases():
        hidden = case.hidden[0]
        gate = sigmoid(
            linear(p, "gate_from_word", case.word[0]) + linear(p, "gate_from_hidden", case.previous[0])
        )
        sentinel = gate * np.tanh(case.cell[0])
        keys = [*case.regions, linear(p, "key", sentinel)]
        weights = softmax([equation(p, "score", key, hidden) for key in keys], [*case.real, True])
        close(case.weights[0], weights[:-1])
        close(case.maps[0]["sentinel"], weights[-1:])
        close(
            case.context[0],
            weighted(weights[:-1], case.regions) + weights[-1] * linear(p, "value", sentinel),
        )


def test_a_hidden_sentinel_leaves_all_weight_to_the_regions() -> None:
    """With dropout, each step of training hides it with that probability, and each hypothesis by itself."""
    torch.manual_seed(0)
    attention = SentinelAttention(AdditiveScore(6), dropout=0.25)
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


@pytest.mark.parametrize("dropout", [-0.1, 1.0, float("nan")])
def test_dropout_of_the_sentinel_is_a_probability_below_one(dropout: float) -> None:
    with pytest.raises(UserError, match=f"dropout {dropout} of SentinelAttention must be a probability"):
        SentinelAttention(AdditiveScore(6), dropout)


@pytest.mark.parametrize(
    ("gate", "scales"),
    [("centred", {}), ("doubled", {}), ("centred", {"affinity_scale": 0.3, "distance_scale": 0.7})],
)
@pytest.mark.parametrize("masked", [False, True])
def test_compositional_de_attention(gate: str, scales: dict[str, float], masked: bool) -> None:
    """tanh(α_s q · k) ∘ σ(β_s (n - mean n)) or ∘ 2σ(β_s n), n = -‖q - k‖₁ (Tay et al. 2019)."""
    size = 6
    done = run(CompositionalDeAttention(size, gate, **scales), masked=masked)
    p = done.p
    alpha_s = scales.get("affinity_scale", 1 / np.sqrt(size))
    beta_s = scales.get("distance_scale", 1 / np.sqrt(size) if gate == "centred" else 1 / size)
    signs = set()
    for case in done.cases():
        q = linear(p, "query", case.hidden[0])
        keys = [linear(p, "key", a) for a in case.regions]
        n = [-sum(abs(q[i] - k[i]) for i in range(size)) for k in keys]
        mean = sum(near for near, real in zip(n, case.real, strict=True) if real) / sum(case.real)
        weights = []
        for k, near, real in zip(keys, n, case.real, strict=True):
            g = sigmoid(beta_s * (near - mean)) if gate == "centred" else 2 * sigmoid(beta_s * near)
            weights.append(np.tanh(alpha_s * dot(q, k)) * g if real else 0.0)
        signs |= set(np.sign(weights))
        close(case.weights[0], weights)
        close(case.context[0], weighted(weights, case.regions))
    assert {-1.0, 1.0} <= signs


def test_scales_and_forms_of_de_attention_are_checked() -> None:
    with pytest.raises(UserError, match="distance_scale 0 of CompositionalDeAttention must be above 0"):
        CompositionalDeAttention(4, distance_scale=0)
    with pytest.raises(ValueError, match="gate must be one of 'centred', 'doubled'"):
        CompositionalDeAttention(4, "halved")
