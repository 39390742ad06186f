"""Alignments against their equations; sparse ones against a bisection for the threshold, and their known properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from helpers.loops import (
    HIDDEN,
    Case,
    additive,
    check_transcription,
    close,
    dot,
    linear,
    random_queries,
    random_views,
    run,
    sigmoid,
    softmax,
    weighted,
)
from torch import Tensor

from caption.attention import (
    AdditiveScore,
    Alignment,
    Entmax15,
    FollowingWindow,
    GridMemory,
    PredictedWindow,
    QuerySizes,
    ScoredAttention,
    Sigmoid,
    Sparsemax,
)
from caption.attention.alignments.sparse import entmax15, sparsemax

INF, NAN = float("inf"), float("nan")


def bisected(scores: np.ndarray, power: float, scale: float) -> np.ndarray:
    """[scale · e - τ]₊^power with the τ at which the sum is 1, found by halving an interval."""
    z = scale * scores
    low, high = z.max() - 1.0, z.max()  # at the first the sum is at least 1, at the second 0
    for _ in range(200):
        middle = (low + high) / 2
        if sum(max(x - middle, 0.0) ** power for x in z) >= 1:
            low = middle
        else:
            high = middle
    return np.array([max(x - low, 0.0) ** power for x in z])


SPARSE: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "sparsemax": (sparsemax, lambda e: bisected(e, 1, 1.0)),
    "entmax": (entmax15, lambda e: bisected(e, 2, 0.5)),
}
sparse = pytest.mark.parametrize("name", SPARSE)


def score_rows() -> Tensor:
    """(40, 9) scores of several spreads, some rows masked in part."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(40, 9, generator=generator, dtype=torch.float64)
    scores = scores * torch.logspace(-2, 2, 40, dtype=torch.float64)[:, None]
    scores[::3, 2] = scores[::4, 5] = -INF
    return scores


@sparse
def test_the_weights_are_those_of_bisection(name: str) -> None:
    fast, slow = SPARSE[name]
    for row in score_rows():
        np.testing.assert_allclose(fast(row).numpy(), slow(row.numpy()), atol=1e-12)


@sparse
def test_equal_scores_give_equal_weights(name: str) -> None:
    fast = SPARSE[name][0]
    close(fast(torch.full((5,), -3.0, dtype=torch.float64)), np.full(5, 0.2))
    close(fast(torch.tensor([1.0, -INF, 1.0, 1.0], dtype=torch.float64)), [1 / 3, 0, 1 / 3, 1 / 3])
    tied = fast(torch.tensor([0.3, 0.3, 0.1, 0.1, -0.4], dtype=torch.float64))
    assert tied[0] == tied[1] > tied[2] == tied[3]
    assert fast(torch.tensor([4.0, -INF]))[0] == 1  # a single region


@sparse
def test_nan_gives_nan_as_in_softmax(name: str) -> None:
    scores = torch.tensor([[1.0, NAN, 2.0], [-INF, -INF, -INF], [1.0, 2.0, 9.0]])
    assert torch.equal(SPARSE[name][0](scores).isnan(), scores.softmax(-1).isnan())


@sparse
@pytest.mark.parametrize("scores", [[0.2, -0.3, 0.5, 0.1], [3.0, 0.4, -0.2, 0.6], [0.4, -INF, 0.1, -2.0]])
def test_the_gradient_is_that_of_finite_differences(name: str, scores: list[float]) -> None:
    fast, slow = SPARSE[name]
    leaf = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    into = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    (fast(leaf) @ into).backward()
    expected = []
    for i in range(4):
        if scores[i] == -INF:
            expected.append(0.0)
            continue
        high, low = (np.array(scores) + step * np.eye(4)[i] for step in (1e-6, -1e-6))
        expected.append(float((slow(high) - slow(low)) @ into.numpy() / 2e-6))
    np.testing.assert_allclose(leaf.grad, expected, atol=1e-7)


@sparse
def test_half_precision_is_computed_in_single(name: str) -> None:
    scores = torch.tensor([3.0, -1.0, 3.5], dtype=torch.bfloat16)
    assert SPARSE[name][0](scores).dtype == torch.float32
    close(SPARSE[name][0](scores), SPARSE[name][0](scores.float()))


@pytest.mark.parametrize(("alignment", "name"), [(Sparsemax(), "sparsemax"), (Entmax15(), "entmax")])
def test_the_context_is_the_sum_under_sparse_weights(alignment: Alignment, name: str) -> None:
    done = run(ScoredAttention(AdditiveScore(6), alignment))
    scores = done.attention.score(done.queries[0], done.memory).detach().numpy()
    for (b, k), case in zip(np.ndindex(2, 2), done.cases(), strict=True):
        weights = np.zeros(6)
        weights[case.real] = SPARSE[name][1](scores[b, k][case.real])
        np.testing.assert_allclose(case.weights[0], weights, atol=1e-12)
        np.testing.assert_allclose(case.context[0], weighted(weights, case.regions), atol=1e-12)


# -- one by one ----------------------------------------------------------------------------------------------------


def test_weights_that_are_normalised_one_by_one() -> None:
    """α_i = σ(e_i + b): each between 0 and 1, 0 where masked, with any sum."""

    def one_by_one(p: dict[str, np.ndarray], case: Case) -> tuple[np.ndarray, dict[str, Any]]:
        scores = [additive(p, "score", a, case.hidden[0]) for a in case.regions]
        weights = [
            sigmoid(e + float(p["alignment.offset"])) if real else 0.0
            for e, real in zip(scores, case.real, strict=True)
        ]
        return weighted(weights, case.regions), {"weights": weights}

    done = run(ScoredAttention(AdditiveScore(6), Sigmoid()))
    check_transcription(done, one_by_one)
    assert (done.outputs[0].weights.sum(-1) > 1).any()


def test_the_offset_starts_as_told() -> None:
    """At -log L the weights of scores of 0 are 1 / (L + 1)."""
    alignment = Sigmoid(-float(np.log(64)))
    alignment.build(QuerySizes(HIDDEN))
    weights = alignment(torch.zeros(1, 1, 64), random_queries(1)[0], None).weights  # type: ignore[arg-type]
    close(weights, np.full((1, 1, 64), 1 / 65).astype(np.float32))


# -- windows -------------------------------------------------------------------------------------------------------


def window(scores: np.ndarray, real: np.ndarray, centre: np.ndarray, reach: float, cols: int) -> np.ndarray:
    """Softmax over the cells within `reach` of the centre, in rows and in columns."""
    inside = [
        bool(real[i] and abs(i // cols - centre[0]) <= reach and abs(i % cols - centre[1]) <= reach)
        for i in range(len(scores))
    ]
    return softmax(list(scores), inside if any(inside) else list(real))


def test_a_predicted_window() -> None:
    """Luong et al. 2015, eqs. 9 and 10, in two dimensions: p = (rows - 1, cols - 1) σ(V tanh(W h + b) + c); weights in
    the window times exp(-‖x - p‖² / 2σ²), σ = reach / 2."""
    rows, cols, reach = 4, 5, 1.5
    done = run(ScoredAttention(AdditiveScore(6), PredictedWindow(reach, size=3)), grids=((rows, cols),))
    p = done.p
    scores = done.attention.score(done.queries[0], done.memory).detach().numpy()
    for (b, k), case in zip(np.ndindex(2, 2), done.cases(), strict=True):
        hidden = np.tanh(linear(p, "alignment.centre.0", case.hidden[0]))
        centre = sigmoid(linear(p, "alignment.centre.2", hidden)) * np.array([rows - 1, cols - 1])
        weights = window(scores[b, k], case.real, centre, reach, cols)
        assert 1 < (weights > 0).sum() < rows * cols
        for i in range(rows * cols):
            squared = (i // cols - centre[0]) ** 2 + (i % cols - centre[1]) ** 2
            weights[i] *= np.exp(-squared / (2 * (reach / 2) ** 2))
        close(case.weights[0], weights)
        close(case.context[0], weighted(weights, case.regions))


def test_a_following_window() -> None:
    """The centre of a step is Σ_i α_i x_i of the step before; the first step sees the whole grid."""
    rows, cols, reach = 4, 5, 1.0
    done = run(ScoredAttention(AdditiveScore(6), FollowingWindow(reach)), steps=3, grids=((rows, cols),))
    scores = [done.attention.score(query, done.memory).detach().numpy() for query in done.queries]
    for (b, k), case in zip(np.ndindex(2, 2), done.cases(), strict=True):
        weights = softmax(scores[0][b, k], case.real)
        close(case.weights[0], weights)
        for t in (1, 2):
            centre = np.array(
                [
                    dot(weights, np.arange(rows * cols) // cols),
                    dot(weights, np.arange(rows * cols) % cols),
                ]
            )
            weights = window(scores[t][b, k], case.real, centre, reach, cols)
            assert 1 <= (weights > 0).sum() < rows * cols
            close(case.weights[t], weights)


@pytest.mark.parametrize("alignment", [PredictedWindow(1.0, 3), FollowingWindow(1.0)])
def test_a_window_over_masked_cells_alone_sees_all_real_ones(alignment: Alignment) -> None:
    """Only the last cell of a row of nine is real; the window is at the left, or where the step before has looked."""
    view = random_views([(1, 9)])[0]
    mask = torch.zeros(2, 9, dtype=torch.bool)
    mask[:, -1] = True
    alignment.build(QuerySizes(HIDDEN))
    alignment.double()
    memory = GridMemory(None, view.vectors, mask, view.grid)
    query = random_queries(1)[0]
    if isinstance(alignment, PredictedWindow):
        torch.nn.init.constant_(alignment.centre[2].bias, -50.0)
    state = torch.zeros(2, 2, 2, dtype=torch.float64)
    scores = torch.randn(2, 2, 9, dtype=torch.float64).masked_fill(~mask[:, None], -INF)
    weights = alignment(scores, query, memory, state).weights
    assert not torch.isnan(weights).any()
    assert (weights[..., :-1] == 0).all()


# -- samples -------------------------------------------------------------------------------------------------------
