"""Co-attention between regions and words so far, and rotatory attention among parts of a photo, against their
equations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers.given_scores import GivenScores
from helpers.loops import (
    Vector,
    additive,
    close,
    dot,
    linear,
    parameters,
    random_views,
    randomise,
    run,
    softmax,
    weighted,
)

from caption.attention import (
    ActivatedGeneralScore,
    AdditiveScore,
    AlternatingCoAttention,
    Attention,
    DotScore,
    GeneralScore,
    GridMemory,
    InteractiveCoAttention,
    MaxCoAttention,
    MLPScore,
    MutualCrossAttention,
    ParallelCoAttention,
    Query,
    QuerySizes,
    RotatoryAttention,
    ScaledDotScore,
    Score,
    SymmetricCoAttention,
    SymmetricScore,
    TrilinearScore,
    WordProjection,
)
from caption.attention.maps import hide_masked
from caption.errors import UserError
from caption.regions import Regions

Weights = dict[str, np.ndarray]
Vectors = list[Vector]
Equation = Callable[[Weights, str, Vector, Vector], float]
"""The score of a key and a query, with the weights of a name."""
SIZE, STEPS = 4, 3


# -- scores --------------------------------------------------------------------------------------------------------


def scaled_dot(p: Weights, name: str, k: Vector, q: Vector) -> float:
    return dot(linear(p, f"{name}.query", q), linear(p, f"{name}.key", k)) / np.sqrt(6)


def plain_dot(p: Weights, name: str, k: Vector, q: Vector) -> float:
    return dot(q, linear(p, f"{name}.key", k))


def bilinear(p: Weights, name: str, k: Vector, q: Vector) -> float:
    """kᵀ W q."""
    weight = p[f"{name}.query.weight"]
    return sum(k[i] * weight[i, j] * q[j] for i in range(len(k)) for j in range(len(q)))


def tanh_bilinear(p: Weights, name: str, k: Vector, q: Vector) -> float:
    """tanh(kᵀ W q + b) (Ma et al. 2017, eq. 7); without b in Lu et al. 2016, eq. 3."""
    return float(np.tanh(bilinear(p, name, k, q) + p.get(f"{name}.offset", 0.0)))


def mlp(p: Weights, name: str, k: Vector, q: Vector) -> float:
    """w · ReLU(W [q; k] + b)."""
    inner = np.maximum(linear(p, f"{name}.region", k) + linear(p, f"{name}.query", q), 0)
    return float(linear(p, f"{name}.layers.1", inner)[0])


def trilinear(p: Weights, name: str, k: Vector, q: Vector) -> float:
    """w · [k; q; k ∘ q] (Seo et al. 2017, eq. 1)."""
    joined = [*k, *q, *(k[n] * q[n] for n in range(len(k)))]
    return dot(p[f"{name}.energy.weight"][0], np.array(joined))


def symmetric_score(p: Weights, name: str, k: Vector, q: Vector) -> float:
    """kᵀ Pᵀ D P q."""
    projection, scale = p[f"{name}.project.weight"], p[f"{name}.scale"]
    matrix = np.einsum("mi,m,mj->ij", projection, scale, projection)
    return sum(k[i] * matrix[i, j] * q[j] for i in range(len(k)) for j in range(len(q)))


SCORES: dict[str, tuple[Callable[[], Score], Equation]] = {
    "additive": (lambda: AdditiveScore(6), additive),
    "dot": (DotScore, plain_dot),
    "scaled dot": (lambda: ScaledDotScore(6), scaled_dot),
    "general": (GeneralScore, bilinear),
    "tanh": (ActivatedGeneralScore, tanh_bilinear),
    "tanh without offset": (lambda: ActivatedGeneralScore(offset=False), tanh_bilinear),
    "mlp": (lambda: MLPScore((6,)), mlp),
    "trilinear": (TrilinearScore, trilinear),
    "symmetric": (SymmetricScore, symmetric_score),
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


MECHANISMS: dict[str, tuple[Callable[[Score], Attention], CoEquation, tuple[str, ...]]] = {
    "parallel": (
        lambda score: ParallelCoAttention(WordProjection(SIZE), score),
        parallel,
        ("tanh without offset", "trilinear", "additive"),
    ),
    "max": (
        lambda score: MaxCoAttention(WordProjection(SIZE), score),
        maximum,
        ("tanh without offset", "trilinear"),
    ),
    "alternating": (
        lambda score: AlternatingCoAttention(WordProjection(SIZE), score),
        alternating,
        ("additive", "dot", "scaled dot", "general", "mlp"),
    ),
    "interactive": (
        lambda score: InteractiveCoAttention(WordProjection(SIZE), score),
        interactive,
        ("tanh", "additive", "dot", "scaled dot", "general", "mlp"),
    ),
    "symmetric": (
        lambda score: SymmetricCoAttention(WordProjection(SIZE), score),
        symmetric,
        ("symmetric", "general"),
    ),
}


@pytest.mark.parametrize(
    ("name", "score"), [(name, score) for name, (_, _, scores) in MECHANISMS.items() for score in scores]
)
def test_both_sides_and_the_context(name: str, score: str) -> None:
    make, equation, _ = MECHANISMS[name]
    make_score, score_equation = SCORES[score]
    done = run(make(make_score()), STEPS)
    p = done.p
    for case in done.cases():
        keys = [linear(p, "key", a) for a in case.regions]
        for t in range(STEPS):
            words = [linear(p, "words.project", word) for word in case.word[: t + 1]]
            of_regions, beside = equation(p, score_equation, list(case.regions), keys, case.real, words)
            close(case.weights[t], of_regions)
            close(case.maps[t]["words"], beside)
            close(case.context[t], np.concatenate([weighted(of_regions, case.regions), beside]))


def cosine(x: Vector, y: Vector) -> float:
    return dot(x, y) / np.sqrt(dot(x, x) * dot(y, y))


def test_a_score_of_one_query_is_the_special_case_of_one_word_whose_affinity_is_one() -> None:
    """Lu et al. 2016, section 3.3: the score of one query q, v · tanh(U k_i + W q), is the parallel form of a single
    word when A = 1, with U = W1, W = W2 and v = w1; with a learned A it is another."""
    for offset, equal in ((50.0, True), (0.0, False)):
        parallel = ParallelCoAttention(WordProjection(SIZE), ActivatedGeneralScore())
        case = run(parallel)
        with torch.no_grad():
            parallel.affinity.query.weight.mul_(0.0 if equal else 1.0)
            parallel.affinity.offset.fill_(offset)  # tanh(50) = 1
        old = AdditiveScore(SIZE)
        old.build(SIZE, QuerySizes(SIZE))
        old.double().load_state_dict({
            "region.weight": parallel.map_regions.weight, "region.bias": torch.zeros(SIZE),
            "query.weight": parallel.map_words.weight, "energy.weight": parallel.region_energy.weight,
        })  # fmt: skip
        (view,) = case.views
        keys = view._replace(vectors=parallel.key(view.vectors))
        word = parallel.words.project(case.queries[0].word)
        scores = hide_masked(old(Query(word), GridMemory.of(keys, old.keys(keys))), view.mask)
        found = parallel(
            case.queries[0], parallel.project(case.views), parallel.start(case.memory, 2)
        ).weights
        assert torch.allclose(found, scores.softmax(-1)) == equal


def kernel(p: Weights, name: str, mean: float) -> float:
    """W2 ReLU(W1 g + b1) + b2."""
    return float(linear(p, f"{name}.2", np.maximum(linear(p, f"{name}.0", np.array([mean])), 0))[0])


def test_mutual_cross_attention() -> None:
    """Hou et al. 2019: weights softmax(mean of kernel times correlations, / τ) for both sides; each side's
    mean and its weighted sum are added."""
    done = run(MutualCrossAttention(WordProjection(SIZE), 0.3, 5), STEPS)
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


@pytest.mark.parametrize("score", ["tanh", "additive", "dot", "scaled dot", "general", "mlp"])
@pytest.mark.parametrize("column", range(4))
def test_rotatory(score: str, column: int) -> None:
    """Zheng and Xia 2018 with three sets: the target, the real regions of a column; left and right, those before and
    behind it. r_t = mean of the target; r_l, r_r the contexts attended with r_t, 0 if there are none; then the target
    with r_l and r_r.

    Each of the four has keys K x, values V x and a score of its own.
    """
    make_score, equation = SCORES[score]
    views = random_views(((2, 4),))
    attention = RotatoryAttention(GivenScores(), make_score(), SIZE)
    attention.build((SIZE,), QuerySizes(8))
    randomise(attention.double())
    p = parameters(attention)
    chosen = [0.0 if i % 4 == column else -1e4 for i in range(8)]
    output = attention(Query(torch.tensor([[chosen]] * 2, dtype=torch.float64)), attention.project(views))

    def attend(name: str, query: Vector, part: Vectors) -> tuple[Vector, Vector]:
        scores = [equation(p, f"{name}.score", linear(p, f"{name}.key", x), query) for x in part]
        weights = softmax(scores)
        return weights, weighted(weights, [linear(p, f"{name}.value", x) for x in part])

    for b, (vectors, mask) in enumerate(zip(views[0].vectors.numpy(), views[0].mask, strict=True)):
        real = [i for i in range(8) if mask[i]]
        target, left, right = (
            [i for i in real if i % 4 == column],
            [i for i in real if i % 4 < column],
            [i for i in real if i % 4 > column],
        )
        mean = sum(vectors[i] for i in target) / len(target)
        read = []
        for name, places in (("left", left), ("right", right)):
            weights, r = attend(name, mean, vectors[places]) if places else ([], np.zeros(SIZE))
            expected = np.zeros(8)
            expected[places] = weights
            close(getattr(output.maps, name)[b, 0], expected)
            read.append(r)
        maps, of_target = zip(
            attend("target_by_left", read[0], vectors[target]),
            attend("target_by_right", read[1], vectors[target]),
            strict=True,
        )
        close(output.maps.target[b, 0][:, target], maps)
        close(output.context[b, 0], np.concatenate([*read, *of_target]))


def test_a_target_between_columns_weighs_its_contexts_by_their_probability() -> None:
    """α_i ∝ λ_i exp(e_i) with λ_i = P(the target lies in a column right of that of i), and max λ as their sum."""
    done = run(RotatoryAttention(AdditiveScore(6), AdditiveScore(5), SIZE))
    p = done.p
    for case in done.cases():
        tau = softmax([additive(p, "target", a, case.hidden[0]) for a in case.regions], case.real)
        places = [i for i in range(6) if case.real[i]]
        mean = weighted(tau, case.regions)
        context = []
        for name, sign in (("left", 1), ("right", -1)):
            odds, members = np.zeros(6), np.zeros(6)
            for i in places:
                members[i] = sum(tau[j] for j in places if sign * (j % 3 - i % 3) > 0)
                odds[i] = members[i] * np.exp(
                    additive(p, f"{name}.score", linear(p, f"{name}.key", case.regions[i]), mean)
                )
            weights = odds / odds.sum() * members.max()
            close(case.maps[0][name], weights)
            values = [linear(p, f"{name}.value", a) for a in case.regions]
            context.append(weighted(weights, values))
        for side, name in enumerate(("target_by_left", "target_by_right")):
            odds = [
                tau[i]
                * np.exp(
                    additive(p, f"{name}.score", linear(p, f"{name}.key", case.regions[i]), context[side])
                )
                for i in range(6)
            ]
            close(case.maps[0]["target"][side], np.array(odds) / sum(odds))
            values = [linear(p, f"{name}.value", a) for a in case.regions]
            context.append(weighted(case.maps[0]["target"][side], values))
        close(case.context[0], np.concatenate(context))
        close(case.weights[0], case.maps[0]["target"].mean(0))


def test_the_attentions_of_a_mechanism_share_no_weights() -> None:
    """Nor do the scores made of one start alike."""
    torch.manual_seed(0)
    attention = RotatoryAttention(AdditiveScore(6), AdditiveScore(6), SIZE)
    attention.build((SIZE,), QuerySizes(5, 3))
    parts = attention.parts
    for name in ("key.weight", "value.weight", "score.query.weight"):
        tensors = [part.get_parameter(name) for part in parts]
        assert all(not torch.equal(tensors[i], tensors[j]) for i in range(4) for j in range(i))


def test_a_masked_region_is_not_the_best_of_any_word() -> None:
    """A = tanh(-k f) is negative: of the real regions k = 1 and 2, the first is the best of each word."""
    attention = MaxCoAttention(WordProjection(1), ActivatedGeneralScore(offset=False))
    attention.build((1,), QuerySizes(5, 1))
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.fill_(0.0 if parameter.dim() == 1 else 1.0)
        attention.affinity.query.weight.fill_(-1.0)
    view = Regions(torch.tensor([[[1.0], [2.0], [3.0]]]), (1, 3), torch.tensor([[True, True, False]]))
    memory = attention.project((view,))
    _, words = attention.attend(torch.tensor([[[[1.0], [2.0]]]]), memory)
    first, second = softmax([np.tanh(-1), np.tanh(-2)])
    torch.testing.assert_close(words, torch.tensor([[[first + 2 * second]]], dtype=torch.float32))


@pytest.mark.parametrize("score", [TrilinearScore, SymmetricScore])
def test_a_score_of_equal_lengths_refuses_others(score: Callable[[], Score]) -> None:
    said = rf"{score.__name__} compares vectors of one length, and here regions have 4 numbers and queries 5"
    with pytest.raises(UserError, match=said):
        score().build(4, QuerySizes(5))
