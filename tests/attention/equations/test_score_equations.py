"""Each score against its equation, region by region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers.loops import (
    Case,
    Vector,
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
    ActivatedGeneralScore,
    AdditiveScore,
    BoundedLearnedQueryScore,
    ConcatenationScore,
    CosineScore,
    DotScore,
    FeedForwardScore,
    GeneralScore,
    LearnedQueryScore,
    LocationSensitiveScore,
    MLPScore,
    NeighbourhoodScore,
    QuerySizes,
    ScaledDotScore,
    Score,
    ScoredAttention,
    Sigmoid,
    Softmax,
    StructuredAttention,
)
from caption.attention.maps import named_maps
from caption.errors import UserError

Weights = dict[str, np.ndarray]
Equation = Callable[[Weights, Vector, Vector], float]


def additive(bend: Callable[[Vector], Vector], layers: int = 1) -> Equation:
    """v · f(U a + b + W h) (Bahdanau et al. 2015, appendix A.1.2); two layers: f(U_1 (U a + b) + b_1) for U a + b."""

    def equation(p: Weights, a: Vector, h: Vector) -> float:
        key = linear(p, "region", a)  # no activation after the first layer
        if layers == 2:
            key = bend(linear(p, "deeper.0", key))
        return dot(p["energy.weight"][0], bend(key + linear(p, "query", h)))

    return equation


def relu(x: Vector) -> Vector:
    return np.maximum(x, 0)


def dot_product(p: Weights, a: Vector, h: Vector) -> float:
    return dot(linear(p, "key", a), h)


def scaled_dot(p: Weights, a: Vector, h: Vector) -> float:
    """q · k / √A (Vaswani et al. 2017, eq. 1), A = 6."""
    return dot(linear(p, "key", a), linear(p, "query", h)) / np.sqrt(6)


def general(p: Weights, a: Vector, h: Vector) -> float:
    """aᵀ W h (Luong et al. 2015, section 3.1)."""
    weight = p["query.weight"]  # (D, H)
    return sum(a[i] * weight[i, j] * h[j] for i in range(len(a)) for j in range(len(h)))


def biased_general(p: Weights, a: Vector, h: Vector) -> float:
    """aᵀ (W h + b)."""
    return general(p, a, h) + dot(a, p["query.bias"])


def activated(bend: Callable[[float], float]) -> Equation:
    """f(aᵀ W h + b)."""
    return lambda p, a, h: bend(general(p, a, h) + float(p["offset"]))


def cosine(p: Weights, a: Vector, h: Vector) -> float:
    """s · cos(q, k) (Graves et al. 2014, section 3.3.1)."""
    q, k = linear(p, "query", h), linear(p, "key", a)
    return np.exp(p["log_strength"]) * dot(q, k) / np.sqrt(dot(q, q)) / np.sqrt(dot(k, k))


def mlp(p: Weights, a: Vector, h: Vector) -> float:
    """w · ReLU(W_2 ReLU(W_1 [h; a] + b_1) + b_2), with W_1 in two parts."""
    first = np.maximum(linear(p, "region", a) + linear(p, "query", h), 0)
    second = np.maximum(linear(p, "layers.1", first), 0)
    return float(linear(p, "layers.3", second)[0])


def feed_forward(p: Weights, a: Vector, h: Vector) -> float:
    """q · tanh(W a + b): h is not in it."""
    return dot(p["query.weight"][0], np.tanh(linear(p, "region", a)))


def learned_query(p: Weights, a: Vector, h: Vector) -> float:
    """q · a."""
    return dot(p["query.weight"][0], a)


def bounded_query(p: Weights, a: Vector, h: Vector) -> float:
    """tanh(q · a + b) (Raffel and Ellis 2015, section 1.1)."""
    return float(np.tanh(linear(p, "query", a)[0]))


def concatenation(p: Weights, a: Vector, h: Vector) -> float:
    """w · [h; a]."""
    w = [*p["state.weight"][0], *p["query.weight"][0]]
    return dot(np.array(w), np.array([*h, *a]))


SCORES: dict[str, tuple[Callable[[], Score], Equation]] = {
    "additive": (lambda: AdditiveScore(6), additive(np.tanh)),
    "additive, relu": (lambda: AdditiveScore(6, "relu"), additive(relu)),
    "additive, two layers": (lambda: AdditiveScore(6, layers=2), additive(np.tanh, 2)),
    "additive, relu, two layers": (lambda: AdditiveScore(6, "relu", 2), additive(relu, 2)),
    "dot": (DotScore, dot_product),
    "scaled dot": (lambda: ScaledDotScore(6), scaled_dot),
    "general": (GeneralScore, general),
    "biased general": (lambda: GeneralScore(bias=True), biased_general),
    "activated general, tanh": (ActivatedGeneralScore, activated(np.tanh)),
    "activated general, relu": (lambda: ActivatedGeneralScore("relu"), activated(relu)),
    "activated general, sigmoid": (lambda: ActivatedGeneralScore("sigmoid"), activated(sigmoid)),
    "activated general, tanh, scaled": (
        lambda: ActivatedGeneralScore(strength=3.0),
        lambda p, a, h: np.exp(p["log_strength"]) * activated(np.tanh)(p, a, h),
    ),
    "cosine": (lambda: CosineScore(6), cosine),
    "mlp": (lambda: MLPScore((6, 7)), mlp),
    "feed-forward, two layers": (lambda: FeedForwardScore(6), feed_forward),
    "concatenation": (ConcatenationScore, concatenation),
    "feed-forward, one layer": (lambda: LearnedQueryScore(), learned_query),
    "feed-forward, one layer with tanh": (lambda: BoundedLearnedQueryScore(), bounded_query),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_weights_and_context_are_those_of_the_equations(name: str) -> None:
    """And so are the gradients."""
    make, equation = SCORES[name]

    def scores_of(p: Weights, case: Case) -> list[float]:
        own = {key.removeprefix("score."): value for key, value in p.items()}
        return [equation(own, a, case.hidden[0]) for a in case.regions]

    def attended(p: Weights, case: Case) -> tuple[Vector, dict[str, Any]]:
        weights = softmax(scores_of(p, case), case.real)
        return weighted(weights, case.regions), {"weights": weights}

    done = run(ScoredAttention(make(), Softmax()))
    check_transcription(done, attended)
    scores = done.attention.score(done.queries[0], done.memory)
    close(scores.flatten(0, 1), [scores_of(done.p, case) for case in done.cases()])


def test_the_query_of_a_concatenation_cancels_in_a_softmax_and_not_in_sigmoids() -> None:
    """Under the softmax both queries have the weights of the score w₂ · a alone; each weight under the sigmoid follows
    its own query, and the order of the regions does not."""
    for case in (done := run(ScoredAttention(ConcatenationScore(), Softmax()))).cases():
        of_regions = [dot(done.p["score.query.weight"][0], a) for a in case.regions]
        close(case.weights[0], softmax(of_regions, case.real))
    (one, other), *_ = run(ScoredAttention(ConcatenationScore(), Sigmoid())).outputs[0].weights
    assert not np.isclose(one.detach(), other.detach())[one.detach() > 0].any()
    assert one.argsort().tolist() == other.argsort().tolist()


@pytest.mark.parametrize("form", ["one map", "maps", "queries"])
def test_the_overlap_of_queries_and_of_maps_is_penalised(form: str) -> None:
    """Σ_st (x_s · x_t − [s = t])² of the queries inside the tanh, or of the maps or queries of Lin et al. 2017."""
    done = run(
        ScoredAttention(FeedForwardScore(3), Softmax())
        if form == "one map"
        else StructuredAttention(3, 6, form)  # type: ignore[arg-type]
    )
    maps = [case.maps[0].get("queries") for case in done.cases()]
    name = "score.region.weight" if form == "one map" else "energy.weight"
    each = maps if form == "maps" else [done.p[name]]
    totals = [
        sum((dot(x, y) - (s == t)) ** 2 for s, x in enumerate(rows) for t, y in enumerate(rows))
        for rows in each
    ]
    ours = done.attention.penalty(named_maps(done.outputs[0].maps))
    close(ours, sum(totals) / len(totals))
    assert ours.requires_grad


def test_most_scores_have_no_penalty() -> None:
    assert ScoredAttention(AdditiveScore(6), Softmax()).penalty({}) is None


def test_the_previous_word_is_a_part_of_the_query() -> None:
    """e_i = v · tanh(U a_i + b + W h + W_y Ey), at first with W_y = 0."""
    score = AdditiveScore(6, previous_word=True)
    done = run(ScoredAttention(score, Softmax()))
    for case in done.cases():
        query = linear(done.p, "score.query", case.hidden[0]) + linear(done.p, "score.word", case.word[0])
        compared = [np.tanh(linear(done.p, "score.region", a) + query) for a in case.regions]
        scores = [dot(done.p["score.energy.weight"][0], x) for x in compared]
        close(case.weights[0], softmax(scores, case.real))
    score.build(4, QuerySizes(5, 3))
    assert not score.word.weight.any()


@pytest.mark.parametrize("score", [CosineScore(6, strength=7.0), ActivatedGeneralScore(strength=7.0)])
def test_a_strength_starts_as_told(score: CosineScore | ActivatedGeneralScore) -> None:
    score.build(4, QuerySizes(5))
    assert float(score.log_strength.detach().exp()) == pytest.approx(7.0)
    with pytest.raises(UserError, match=r"strength 0.0 of .* must be above 0"):
        type(score)(strength=0.0)


def test_local_attention_by_a_convolution() -> None:
    """Seo et al. 2017 (D-Attn), section 3.1: s_i = σ(Σ_o q_o · a_{i+o} + b), z = Σ s_i a_i, in two dimensions."""
    rows, cols = 3, 4

    def local(p: Weights, case: Case) -> tuple[Vector, dict[str, Any]]:
        weights = np.zeros(rows * cols)
        for row, col in np.ndindex(rows, cols):
            score = float(p["alignment.offset"])
            for down, across in np.ndindex(3, 3):
                r, c = row + down - 1, col + across - 1
                if 0 <= r < rows and 0 <= c < cols and case.real[r * cols + c]:
                    score += dot(p["score.queries.weight"][0, :, down, across], case.regions[r * cols + c])
            weights[row * cols + col] = sigmoid(score) * case.real[row * cols + col]
        return weighted(weights, case.regions), {"weights": weights}

    check_transcription(run(ScoredAttention(NeighbourhoodScore(3), Sigmoid()), grids=((rows, cols),)), local)


@pytest.mark.parametrize("cumulative", [False, True])
def test_location_sensitive_scores_see_the_map_of_the_step_before(cumulative: bool) -> None:
    """Chorowski et al. 2015, eqs. 8 and 9: f_i = Σ F α[t-1] around i; e_i = v · tanh(U a_i + b + W h + V f_i)."""
    rows, cols = 2, 3
    done = run(ScoredAttention(LocationSensitiveScore(6, 2, 3, cumulative), Softmax()), steps=4)
    p = {key.removeprefix("score."): value for key, value in done.p.items()}
    kernel = p["location.weight"]  # (filters, inputs, 3, 3)
    for case in done.cases():
        before, total = np.zeros(rows * cols), np.zeros(rows * cols)
        for t in range(4):
            scores = []
            for i in range(rows * cols):
                features = np.zeros(2)
                for number, seen in enumerate([before, total][: 1 + cumulative]):
                    for r in (-1, 0, 1):
                        for c in (-1, 0, 1):
                            row, col = i // cols + r, i % cols + c
                            if 0 <= row < rows and 0 <= col < cols:
                                features = features + kernel[:, number, r + 1, c + 1] * seen[row * cols + col]
                joined = linear(p, "region", case.regions[i]) + linear(p, "query", case.hidden[t])
                scores.append(
                    dot(p["energy.weight"][0], np.tanh(joined + linear(p, "from_location", features)))
                )
            before = softmax(scores, case.real)
            total = total + before
            close(case.weights[t], before)
            close(case.context[t], weighted(before, case.regions))
