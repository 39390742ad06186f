"""Co-attention between regions and words so far, the features of these, and rotatory attention among parts of a photo,
against their equations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from helpers import score_equations
from helpers.given_scores import GivenScores
from helpers.loops import (
    QUERIES,
    WORD,
    Case,
    Run,
    Vector,
    additive,
    check_transcription,
    close,
    dot,
    linear,
    lstm,
    parameters,
    random_queries,
    random_views,
    randomise,
    run,
    softmax,
    weighted,
)
from helpers.score_equations import Equation, Weights

from caption import attention as library
from caption.attention import AdditiveScore, Query, QuerySizes, RotatoryAttention, Score, WordProjection
from caption.core.errors import UserError

Vectors = list[Vector]
SIZE, STEPS = 4, 3


def trilinear(p: Weights, name: str, k: Vector, q: Vector) -> float:
    """w · [k; q; k ∘ q] (Seo et al. 2017, eq. 1)."""
    return dot(p[f"{name}.energy.weight"][0], np.concatenate([k, q, k * q]))


def symmetric_score(p: Weights, name: str, k: Vector, q: Vector) -> float:
    """kᵀ Pᵀ D P q."""
    projection, scale = p[f"{name}.project.weight"], p[f"{name}.scale"]
    matrix = np.einsum("mi,m,mj->ij", projection, scale, projection)
    return sum(k[i] * matrix[i, j] * q[j] for i in range(len(k)) for j in range(len(q)))


SCORES: dict[str, tuple[Callable[[], Score], Equation]] = {
    **score_equations.SCORES,
    "trilinear": (library.TrilinearScore, trilinear),
    "symmetric": (library.SymmetricScore, symmetric_score),
    "dot without projection": (lambda: library.DotScore(project=False), lambda p, name, k, q: dot(k, q)),
}


# -- co-attentions -------------------------------------------------------------------------------------------------

Sides = tuple[Vector, Vector]
"""The weights of the regions, and what the context holds beside Σ α_i a_i."""
CoEquation = Callable[[Weights, Equation, Vectors, Vectors, np.ndarray, Vectors], Sides]
"""Of the weights, the score, regions, their keys, which of them are real, and the words' features."""


def affinity(p: Weights, score: Equation, keys: Vectors, words: Vectors) -> list[list[float]]:
    return [[score(p, "affinity", k, f) for f in words] for k in keys]


def parallel(
    p: Weights, score: Equation, regions: Vectors, keys: Vectors, real: np.ndarray, words: Vectors
) -> Sides:
    """e1 = w1 · tanh(W2 K2 Aᵀ + W1 K1), e2 = w2 · tanh(W1 K1 A + W2 K2)."""
    a = affinity(p, score, keys, words)
    of_regions, of_words = [], []
    for i, k in enumerate(keys):
        summed = linear(p, "map_regions", k)
        for j, f in enumerate(words):
            summed = summed + a[i][j] * linear(p, "map_words", f)
        of_regions.append(dot(p["region_energy.weight"][0], np.tanh(summed)))
    for j, f in enumerate(words):
        summed = linear(p, "map_words", f)
        for i, k in enumerate(keys):
            summed = summed + real[i] * a[i][j] * linear(p, "map_regions", k)
        of_words.append(dot(p["word_energy.weight"][0], np.tanh(summed)))
    return softmax(of_regions, real), weighted(softmax(of_words), words)


def maximum(
    p: Weights, score: Equation, regions: Vectors, keys: Vectors, real: np.ndarray, words: Vectors
) -> Sides:
    """e1_i = max_j A_ij, e2_j = max_i A_ij."""
    a = affinity(p, score, keys, words)
    of_regions = [max(row) for row in a]
    of_words = [max(a[i][j] for i in range(len(keys)) if real[i]) for j in range(len(words))]
    return softmax(of_regions, real), weighted(softmax(of_words), words)


def alternating(
    p: Weights, score: Equation, regions: Vectors, keys: Vectors, real: np.ndarray, words: Vectors
) -> Sides:
    """Words with c0; regions with the result; words with that of the regions."""
    first = p["first_query"]
    summary = weighted(softmax([score(p, "summary_score", f, first) for f in words]), words)
    of_regions = softmax([score(p, "region_score", k, summary) for k in keys], real)
    guide = weighted(of_regions, keys)
    return of_regions, weighted(softmax([score(p, "word_score", f, guide) for f in words]), words)


def interactive(
    p: Weights, score: Equation, regions: Vectors, keys: Vectors, real: np.ndarray, words: Vectors
) -> Sides:
    """e1_i = score(mean word, k_i), e2_j = score(mean key, f_j)."""
    present = [k for k, is_real in zip(keys, real, strict=True) if is_real]
    mean_key, mean_word = sum(present) / len(present), sum(words) / len(words)
    of_regions = softmax([score(p, "region_score", k, mean_word) for k in keys], real)
    return of_regions, weighted(softmax([score(p, "word_score", f, mean_key) for f in words]), words)


def symmetric(
    p: Weights, score: Equation, regions: Vectors, keys: Vectors, real: np.ndarray, words: Vectors
) -> Sides:
    """x_i = [a_i; Σ_j softmax_j(A_ij) f_j], x_j = [f_j; Σ_i softmax_i(A_ij) a_i]; the last x_j, and the x_i read with
    its weights."""
    a = affinity(p, score, keys, words)
    of_last = softmax([row[-1] for row in a], real)
    replaced = [np.concatenate([regions[i], weighted(softmax(a[i]), words)]) for i in range(len(keys))]
    last = np.concatenate([words[-1], weighted(of_last, regions)])
    read = weighted(of_last, replaced)
    d = len(regions[0])
    close(read[:d], last[SIZE:])  # the part that the context has once
    return of_last, np.concatenate([last[:SIZE], read[d:]])


MECHANISMS: dict[
    str, tuple[Callable[[WordProjection, Score], library.Attention], CoEquation, tuple[str, ...]]
] = {
    "parallel": (library.ParallelCoAttention, parallel, ("tanh without offset", "trilinear", "additive")),
    "max": (library.MaxCoAttention, maximum, ("tanh without offset", "trilinear")),
    "alternating": (
        library.AlternatingCoAttention,
        alternating,
        ("additive", "dot", "dot without projection", "scaled dot", "general", "mlp"),
    ),
    "interactive": (
        library.InteractiveCoAttention,
        interactive,
        ("tanh", "additive", "dot", "scaled dot", "general", "mlp"),
    ),
    "symmetric": (library.SymmetricCoAttention, symmetric, ("symmetric", "general")),
}


@pytest.mark.parametrize(
    ("name", "score"), [(name, score) for name, (_, _, scores) in MECHANISMS.items() for score in scores]
)
def test_both_sides_and_the_context(name: str, score: str) -> None:
    make, equation, _ = MECHANISMS[name]
    make_score, score_equation = SCORES[score]
    done = run(make(WordProjection(SIZE), make_score()), STEPS)
    p = done.p
    for case in done.cases():
        keys = [linear(p, "key", a) for a in case.regions]
        for t in range(STEPS):
            words = [linear(p, "words.project", word) for word in case.word[: t + 1]]
            of_regions, beside = equation(p, score_equation, list(case.regions), keys, case.real, words)
            close(case.weights[t], of_regions)
            close(case.maps[t]["words"], beside)
            close(case.context[t], np.concatenate([weighted(of_regions, case.regions), beside]))


def test_a_score_of_one_query_is_the_special_case_of_one_word_whose_affinity_is_one() -> None:
    """Lu et al. 2016, section 3.3: the score of one query q, v · tanh(U k_i + W q), is the parallel form of a single
    word when A = 1, with U = W1, W = W2 and v = w1; with a learned A it is another."""
    for offset, equal in ((50.0, True), (0.0, False)):
        parallel = library.ParallelCoAttention(WordProjection(SIZE), library.ActivatedGeneralScore())
        done = run(parallel)
        with torch.no_grad():
            parallel.affinity.query.weight.mul_(0.0 if equal else 1.0)
            parallel.affinity.offset.fill_(offset)  # tanh(50) = 1
        query = done.queries[0]
        found = parallel(query, parallel.project(done.views), parallel.start(done.memory, 2)).weights
        p = done.p
        for (b, k), case in zip(np.ndindex(2, 2), done.cases(), strict=True):
            word = linear(p, "words.project", case.word[0])
            compared = [
                np.tanh(linear(p, "map_regions", linear(p, "key", a)) + linear(p, "map_words", word))
                for a in case.regions
            ]
            weights = softmax([dot(p["region_energy.weight"][0], x) for x in compared], case.real)
            assert np.allclose(found[b, k].detach().numpy(), weights) == equal


def cosine(x: Vector, y: Vector) -> float:
    return dot(x, y) / np.sqrt(dot(x, x) * dot(y, y))


def kernel(p: Weights, name: str, mean: float) -> float:
    """W2 ReLU(W1 g + b1) + b2."""
    return float(linear(p, f"{name}.2", np.maximum(linear(p, f"{name}.0", np.array([mean])), 0))[0])


def test_mutual_cross_attention() -> None:
    """Hou et al. 2019: weights softmax(mean of kernel times correlations, / τ) for both sides; each side's
    mean and its weighted sum are added."""
    done = run(library.MutualCrossAttention(WordProjection(SIZE), 0.3, 5), STEPS)
    p = done.p
    for case in done.cases():
        places = [i for i in range(len(case.regions)) if case.real[i]]
        keys = [linear(p, "key", a) for a in case.regions]
        mean_region = sum(case.regions[i] for i in places) / len(places)
        for t in range(STEPS):
            words = [linear(p, "words.project", word) for word in case.word[: t + 1]]
            r = [[cosine(k, f) for f in words] for k in keys]
            g_words = [sum(r[i][j] for i in places) / len(places) for j in range(t + 1)]
            g_regions = [sum(row) / (t + 1) for row in r]
            u = [kernel(p, "word_kernel", g) for g in g_words]
            v = [kernel(p, "region_kernel", g) for g in g_regions]
            of_regions = softmax([dot(np.array(u), np.array(row)) / (t + 1) / 0.3 for row in r], case.real)
            of_words = softmax(
                [sum(v[i] * r[i][j] for i in places) / len(places) / 0.3 for j in range(t + 1)]
            )
            close(case.weights[t], of_regions)
            both = weighted(of_words, words) + sum(words) / (t + 1)
            close(case.context[t], np.concatenate([weighted(of_regions, case.regions) + mean_region, both]))


# -- parts of a photo ----------------------------------------------------------------------------------------------


def rotatory(p: Weights, case: Case, equation: Equation, cols: int) -> tuple[Vector, dict[str, Any]]:
    """Zheng and Xia 2018 with three sets of regions: the target, and those in columns left and right of it. r_t = mean
    of the target; r_l, r_r the contexts attended with r_t, 0 if there are none; then the target with r_l and r_r. Each
    of the three inputs has keys K x and values V x of its own, and each of the four attentions a score.

    A region belongs to the target with probability τ_i, and to the left with λ_i = P(the target lies in a column right
    of that of i): α_i ∝ λ_i exp(e_i), and max λ is their sum.
    """
    regions, columns = case.regions, np.arange(len(case.regions)) % cols
    learned = "target.energy.weight" in p
    scores = [additive(p, "target", a, case.hidden[0]) for a in regions] if learned else case.hidden[0]
    tau = softmax(scores, case.real)

    def attend(name: str, query: Vector, members: Vector) -> tuple[Vector, Vector]:
        part = f"of_{name.partition('_')[0]}"
        energies = [equation(p, name, linear(p, f"{part}.key", a), query) for a in regions]
        odds = members * np.exp(energies)
        weights = odds / (odds.sum() or 1.0) * (members.max() if name in ("left", "right") else 1.0)
        return weights, weighted(weights, [linear(p, f"{part}.value", a) for a in regions])

    mean = weighted(tau, regions)
    left, r_left = attend("left", mean, case.real * [tau[columns > column].sum() for column in columns])
    right, r_right = attend("right", mean, case.real * [tau[columns < column].sum() for column in columns])
    by_left, of_left = attend("target_by_left", r_left, tau)
    by_right, of_right = attend("target_by_right", r_right, tau)
    maps = {"left": left, "right": right, "target": [by_left, by_right], "weights": (by_left + by_right) / 2}
    return np.concatenate([r_left, r_right, of_left, of_right]), maps


@pytest.mark.parametrize("score", ["tanh", "additive", "dot", "scaled dot", "general", "mlp"])
def test_rotatory_with_a_learned_target(score: str) -> None:
    make, equation = SCORES[score]
    done = run(RotatoryAttention(AdditiveScore(6), make(), SIZE))
    check_transcription(done, partial(rotatory, equation=equation, cols=3))


@pytest.mark.parametrize("column", range(4))
def test_rotatory_with_a_column_as_target(column: int) -> None:
    attention, views = RotatoryAttention(GivenScores(), AdditiveScore(6), SIZE), random_views([(2, 4)])
    attention.build((SIZE,), QuerySizes(8))
    randomise(attention.double())
    chosen = torch.where(torch.arange(8) % 4 == column, 0.0, -1e4).double().expand(2, 2, 8)
    memory, query = attention.project(views), Query(chosen, chosen, chosen, chosen)
    done = Run(attention, views, [query], memory, [attention(query, memory)])
    check_transcription(done, partial(rotatory, equation=additive, cols=4))


def test_the_attentions_of_a_mechanism_share_no_weights() -> None:
    """But keys and values of the target, for both of its attentions. Nor do the scores made of one start alike."""
    torch.manual_seed(0)
    attention = RotatoryAttention(AdditiveScore(6), AdditiveScore(6), SIZE)
    attention.build((SIZE,), QuerySizes(5, 3))
    inputs = (attention.of_left, attention.of_right, attention.of_target)
    for parts, name in [(inputs, "key.weight"), (inputs, "value.weight"), (attention.scores, "query.weight")]:
        tensors = [part.get_parameter(name) for part in parts]
        assert all(not torch.equal(tensors[i], tensors[j]) for i in range(len(tensors)) for j in range(i))
    assert len([name for name, _ in attention.named_parameters() if name.endswith("key.weight")]) == 3


# -- features of the words so far ----------------------------------------------------------------------------------


def projection(p: Weights, words: Vectors) -> Vector:
    """W y_t + b."""
    return linear(p, "project", words[-1])


def word_lstm(p: Weights, words: Vectors) -> Vector:
    """h of an LSTM that has read the words, from zeros."""
    hidden, cell = np.zeros(SIZE), np.zeros(SIZE)
    for word in words:
        gates = p["cell.weight_ih"] @ word + p["cell.bias_ih"] + p["cell.weight_hh"] @ hidden
        i, f, g, o = np.split(gates + p["cell.bias_hh"], 4)
        hidden, cell = lstm(np.concatenate([i, f, o, g]), cell)
    return hidden


def phrases(longest: int) -> Callable[[Weights, Vectors], Vector]:
    """The maximum over s of tanh(W_s [y_{t-s+1}; …; y_t]), with zeros before the first word."""

    def equation(p: Weights, words: Vectors) -> Vector:
        padded = [np.zeros(WORD)] * (longest - 1) + words
        features = [
            np.tanh(linear(p, f"windows.{s - 1}", np.concatenate(padded[len(padded) - s :])))
            for s in range(1, longest + 1)
        ]
        return np.array([max(feature[n] for feature in features) for n in range(SIZE)])

    return equation


FEATURES: dict[str, tuple[Callable[[], library.WordFeatures], Callable[[Weights, Vectors], Vector]]] = {
    "projection": (lambda: WordProjection(SIZE), projection),
    "LSTM": (lambda: library.WordLSTM(SIZE), word_lstm),
    "phrases of one to three words": (lambda: library.PhraseConvolutions(SIZE), phrases(3)),
    "phrases of one word": (lambda: library.PhraseConvolutions(SIZE, 1), phrases(1)),
}


@pytest.mark.parametrize("name", FEATURES)
def test_features_are_those_of_the_equations(name: str) -> None:
    make, equation = FEATURES[name]
    words = make()
    words.build(WORD)
    randomise(words.double())
    queries = random_queries(STEPS)
    state = words.start(queries[0].hidden, QUERIES)
    assert state.features.shape == (2, QUERIES, 0, SIZE)
    for query in queries:
        state = words(query, state)
    for b, k in np.ndindex(2, QUERIES):
        read = [query.word[b, k].numpy() for query in queries]
        close(state.features[b, k], [equation(parameters(words), read[: t + 1]) for t in range(STEPS)])


def test_words_are_needed() -> None:
    with pytest.raises(UserError, match="WordLSTM"):
        library.SymmetricCoAttention(library.WordLSTM(SIZE), library.ScaledDotScore(6)).build(
            (5,), QuerySizes(7)
        )
    words = WordProjection(SIZE)
    words.build(WORD)
    query = Query(torch.zeros(1, 1, 5))
    with pytest.raises(UserError, match="WordProjection"):
        words(query, words.start(query.hidden, 1))
