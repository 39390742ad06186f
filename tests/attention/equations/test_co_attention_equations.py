"""Co-attention between regions and words so far, and rotatory attention, against their equations."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers.loops import Case, Vector, close, dot, linear, run, softmax, weighted

from caption.attention import (
    AlternatingCoAttention,
    InteractiveCoAttention,
    MaxCoAttention,
    ParallelCoAttention,
    QuerySizes,
    RotatoryAttention,
)
from caption.attention.co_attention import CoAttention
from caption.regions import Regions

Weights = dict[str, np.ndarray]
Vectors = list[Vector]
Sides = tuple[Vector, Vector]
"""Weights of the regions, weights of the words."""
SIZE, STEPS = 4, 3


def affinity(p: Weights, kind: str, v: Vector, q: Vector) -> float:
    if kind == "bilinear":  # tanh(qᵀ W v), Lu et al. 2016, section 3.3
        weight = p["compare.region.weight"]
        return np.tanh(sum(q[i] * weight[i, j] * v[j] for i in range(SIZE) for j in range(SIZE)))
    inner = np.tanh(linear(p, "compare.region", v) + linear(p, "compare.word", q))
    return np.tanh(dot(p["compare.energy.weight"][0], inner))


def parallel(kind: str) -> Callable[[Weights, Vectors, np.ndarray, Vectors], Sides]:
    """H_v = tanh(V + C Q), H_q = tanh(Q + Cᵀ V), softmax of w · H (Lu et al. 2016, section 3.3)."""

    def equation(p: Weights, regions: Vectors, real: np.ndarray, words: Vectors) -> Sides:
        c = [[affinity(p, kind, v, q) for q in words] for v in regions]
        of_regions = []
        for i, v in enumerate(regions):
            h = np.tanh(v + weighted(c[i], words))
            of_regions.append(dot(p["region_score.weight"][0], h))
        of_words = []
        for t, q in enumerate(words):
            h = np.tanh(q + sum(c[i][t] * v for i, v in enumerate(regions) if real[i]))
            of_words.append(dot(p["word_score.weight"][0], h))
        return softmax(of_regions, real), softmax(of_words)

    return equation


def maximum(kind: str) -> Callable[[Weights, Vectors, np.ndarray, Vectors], Sides]:
    """The largest affinity with the other side (Lu et al. 2016, section 3.3)."""

    def equation(p: Weights, regions: Vectors, real: np.ndarray, words: Vectors) -> Sides:
        c = [[affinity(p, kind, v, q) for q in words] for v in regions]
        of_regions = [max(row) for row in c]
        of_words = [max(c[i][t] for i in range(len(regions)) if real[i]) for t in range(len(words))]
        return softmax(of_regions, real), softmax(of_words)

    return equation


def alternating(p: Weights, regions: Vectors, real: np.ndarray, words: Vectors) -> Sides:
    """H = tanh(W x + U g), softmax of w · H: the words without guidance, the regions, the words again."""

    def scores(name: str, vectors: Vectors, guidance: Vector | None) -> list[float]:
        guided = 0.0 if guidance is None else linear(p, f"{name}.guidance", guidance)
        return [
            dot(p[f"{name}.energy.weight"][0], np.tanh(linear(p, f"{name}.own", x) + guided)) for x in vectors
        ]

    summary = weighted(softmax(scores("summarise", words, None)), words)
    of_regions = softmax(scores("to_regions", regions, summary), real)
    return of_regions, softmax(scores("to_words", words, weighted(of_regions, regions)))


def interactive(p: Weights, regions: Vectors, real: np.ndarray, words: Vectors) -> Sides:
    """γ(x, m) = tanh(xᵀ W m + b), m the mean of the other side (Ma et al. 2017, section 2)."""
    present = [v for v, is_real in zip(regions, real, strict=True) if is_real]
    mean_region, mean_word = sum(present) / len(present), sum(words) / len(words)
    of_regions = [
        np.tanh(dot(v, linear(p, "to_regions", mean_word)) + float(p["offsets"][0])) for v in regions
    ]
    of_words = [np.tanh(dot(q, linear(p, "to_words", mean_region)) + float(p["offsets"][1])) for q in words]
    return softmax(of_regions, real), softmax(of_words)


MECHANISMS: dict[str, tuple[Callable[[], CoAttention], Callable[..., Sides]]] = {
    "parallel": (lambda: ParallelCoAttention(SIZE), parallel("bilinear")),
    "parallel, concat": (lambda: ParallelCoAttention(SIZE, "concat"), parallel("concat")),
    "max": (lambda: MaxCoAttention(SIZE), maximum("bilinear")),
    "max, concat": (lambda: MaxCoAttention(SIZE, "concat"), maximum("concat")),
    "alternating": (lambda: AlternatingCoAttention(SIZE), alternating),
    "interactive": (lambda: InteractiveCoAttention(SIZE), interactive),
}


def projected_words(p: Weights, case: Case, t: int) -> Vectors:
    """The words up to the one fed at step t."""
    return [linear(p, "word", word) for word in case.word[: t + 1]]


@pytest.mark.parametrize("name", MECHANISMS)
def test_both_sides_and_the_context(name: str) -> None:
    make, equation = MECHANISMS[name]
    done = run(make(), STEPS)
    p = done.p
    for case in done.cases():
        regions = [linear(p, "region", a) for a in case.regions]
        for t in range(STEPS):
            words = projected_words(p, case, t)
            of_regions, of_words = equation(p, regions, case.real, words)
            close(case.weights[t], of_regions)
            attended = weighted(of_words, words)
            close(case.maps[t]["words"], attended)
            close(case.context[t], np.concatenate([weighted(of_regions, case.regions), attended]))


def test_rotatory() -> None:
    """Zheng and Xia 2018: r_t = mean of the words; r_l, r_r the grids attended with r_t; the words with r_l and r_r.

    Every score is tanh(xᵀ W r + b).
    """
    done = run(RotatoryAttention(SIZE), STEPS, grids=((2, 3), (2, 2)))
    p = done.p
    for case in done.cases():
        for t in range(STEPS):
            words = projected_words(p, case, t)
            target = sum(words) / len(words)
            grids, attended = [], []
            for side, (regions, real) in enumerate([(case.regions, case.real), *case.others]):
                guide = linear(p, f"to_regions.{side}", target)
                offset = float(p["offsets"][side])
                scores = [np.tanh(dot(linear(p, f"regions.{side}", a), guide) + offset) for a in regions]
                weights = softmax(scores, real)
                close(case.maps[t][("left", "right")[side]], weights)
                grids.append(weighted(weights, regions))
                guide = linear(p, f"from_regions.{side}", grids[-1])
                offset = float(p["offsets"][2 + side])
                attended.append(weighted(softmax([np.tanh(dot(q, guide) + offset) for q in words]), words))
            close(case.context[t], np.concatenate([*grids, *attended]))
            close(case.weights[t], case.maps[t]["left"])


def test_a_masked_region_is_not_the_best_of_any_word() -> None:
    """C = tanh(-v q) is negative: of the real regions v = 1 and 2, the first is the best of each word."""
    attention = MaxCoAttention(1)
    attention.build((1,), QuerySizes(5, 1))
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.fill_(0.0 if parameter.dim() == 1 else 1.0)
        attention.compare.region.weight.fill_(-1.0)
    view = Regions(torch.tensor([[[1.0], [2.0], [3.0]]]), (1, 3), torch.tensor([[True, True, False]]))
    memory = attention.project((view,))
    _, words = attention.attend(torch.tensor([[[[1.0], [2.0]]]]), memory)
    first, second = softmax([np.tanh(-1), np.tanh(-2)])
    torch.testing.assert_close(words, torch.tensor([[[first + 2 * second]]], dtype=torch.float32))
