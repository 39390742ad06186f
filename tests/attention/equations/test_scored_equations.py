"""Attention of a score and an alignment: each against its equation, smoothing between them, and their states."""

from __future__ import annotations

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers.given_scores import GivenScores
from helpers.loops import (
    HIDDEN,
    Case,
    Vector,
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
from helpers.score_equations import ABSENT, SCORES, Weights
from helpers.tiny_views import one_row
from torch import Tensor, nn

from caption import attention as library
from caption.attention import (
    AdditiveScore,
    Alignment,
    FollowingWindow,
    PredictedWindow,
    ScoredAttention,
    Softmax,
)
from caption.attention.alignments.entmax import entmax15
from caption.attention.alignments.sparsemax import sparsemax
from caption.attention.map_hooks import edit_maps
from caption.attention.smoothing import smoothed
from caption.core.regions import Regions

INF, NAN = float("inf"), float("nan")
ROWS, COLS, REACH = 4, 5, 1.5

# -- scores -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCORES)
def test_scores_weights_and_context_are_those_of_the_equations(name: str) -> None:
    """And so are the gradients."""
    make, equation = SCORES[name]

    def scores_of(p: Weights, case: Case) -> list[float]:
        return [equation(p, "score", a, case.hidden[0]) for a in case.regions]

    def attended(p: Weights, case: Case) -> tuple[Vector, dict[str, Any]]:
        weights = softmax(scores_of(p, case), case.real)
        return weighted(weights, case.regions), {"weights": weights}

    done = run(ScoredAttention(make(), Softmax()))
    check_transcription(done, attended)
    assert f"score.{ABSENT.get(name)}" not in done.p
    scores = done.attention.score(done.queries[0], done.memory)
    close(scores.flatten(0, 1), [scores_of(done.p, case) for case in done.cases()])


def test_the_previous_word_is_a_part_of_the_query() -> None:
    """e_i = v · tanh(U a_i + b + W h + W_y Ey), at first with W_y = 0."""
    score = AdditiveScore(6, previous_word=True)
    done = run(ScoredAttention(score, Softmax()))
    for case in done.cases():
        query = linear(done.p, "score.query", case.hidden[0]) + linear(done.p, "score.word", case.word[0])
        compared = [np.tanh(linear(done.p, "score.region", a) + query) for a in case.regions]
        scores = [dot(done.p["score.energy.weight"][0], x) for x in compared]
        close(case.weights[0], softmax(scores, case.real))
    score.build(4, library.QuerySizes(5, 3))
    assert not score.word.weight.any()


@pytest.mark.parametrize(
    ("part", "name"),
    [
        (library.CosineScore(6, strength=7.0), "log_strength"),
        (library.ActivatedGeneralScore(strength=7.0), "log_strength"),
        (library.Sigmoid(float(np.log(7))), "offset"),
    ],
)
def test_a_learned_number_starts_as_told(part: Any, name: str) -> None:
    sizes = library.QuerySizes(5)
    part.build(4, sizes) if isinstance(part, library.Score) else part.build(sizes)
    assert part.get_parameter(name).item() == pytest.approx(np.log(7))


def local_half(p: Weights, case: Case, name: str = "") -> Vector:
    """s_i = σ(Σ_o q_o · a_{i+o} + b) on a grid of 3 by 4 (Seo et al. 2017, D-Attn, section 3.1)."""
    weights = np.zeros(12)
    for row, col in np.ndindex(3, 4):
        score = float(p.get(f"{name}alignment.offset", 0.0))
        for down, across in np.ndindex(3, 3):
            r, c = row + down - 1, col + across - 1
            if 0 <= r < 3 and 0 <= c < 4 and case.real[r * 4 + c]:
                score += dot(p[f"{name}score.queries.weight"][0, :, down, across], case.regions[r * 4 + c])
        weights[row * 4 + col] = sigmoid(score) * case.real[row * 4 + col]
    return weights


def global_half(p: Weights, case: Case, name: str = "") -> Vector:
    """s_i = s = σ(Σ_p q_p · a_p + b), with queries for more places than the grid of 3 by 4 has (section 3)."""
    score = float(p.get(f"{name}alignment.offset", 0.0))
    for row, col in np.ndindex(3, 4):
        if case.real[row * 4 + col]:
            score += dot(p[f"{name}score.queries.weight"][0, :, row, col], case.regions[row * 4 + col])
    return sigmoid(score) * case.real


@pytest.mark.parametrize("offset", [0.0, None])
@pytest.mark.parametrize(
    ("score", "half"), [(library.NeighbourhoodScore(3), local_half), (library.WholeGridScore(5), global_half)]
)
def test_either_half_of_d_attn(
    score: library.Score, half: Callable[..., Vector], offset: float | None
) -> None:
    """z = Σ s_i a_i, in two dimensions."""

    def attended(p: Weights, case: Case) -> tuple[Vector, dict[str, Any]]:
        assert ("alignment.offset" in p) == (offset is not None)
        weights = half(p, case)
        return weighted(weights, case.regions), {"weights": weights}

    done = run(ScoredAttention(score, library.Sigmoid(offset)), grids=((3, 4),))
    check_transcription(done, attended)
    assert not done.attention.properties.sums_to_one


def test_dual_attention_joins_both_halves() -> None:
    """z = [z_local; z_global] (Seo et al. 2017, section 3)."""

    def both(p: Weights, case: Case) -> tuple[Vector, dict[str, Any]]:
        local, everywhere = local_half(p, case, "local."), global_half(p, case, "everywhere.")
        context = np.concatenate([weighted(local, case.regions), weighted(everywhere, case.regions)])
        return context, {"local_global": [local, everywhere], "weights": (local + everywhere) / 2}

    attention = library.LocalGlobalAttention(
        library.NeighbourhoodScore(3), library.Sigmoid(), library.WholeGridScore(5), library.Sigmoid()
    )
    assert not attention.properties.sums_to_one
    check_transcription(run(attention, grids=((3, 4),)), both)
    one_bounded = library.LocalGlobalAttention(
        AdditiveScore(6), Softmax(), AdditiveScore(6), library.Sigmoid()
    )
    assert not one_bounded.properties.sums_to_one


@pytest.mark.parametrize("cumulative", [False, True])
def test_location_sensitive_scores_see_the_map_of_the_step_before(cumulative: bool) -> None:
    """Chorowski et al. 2015, eqs. 8 and 9: f_i = Σ F α[t-1] around i; e_i = v · tanh(U a_i + b + W h + V f_i)."""
    rows, cols = 2, 3
    score = library.LocationSensitiveScore(6, 2, 3, cumulative)
    done = run(ScoredAttention(score, Softmax()), steps=4)
    p = {key.removeprefix("score."): value for key, value in done.p.items()}
    kernel = p["location.weight"]  # (filters, inputs, 3, 3)
    for case in done.cases():
        before, total = np.zeros(rows * cols), np.zeros(rows * cols)
        for t in range(4):
            scores = []
            for i in range(rows * cols):
                features = np.zeros(2)
                for number, r, c in np.ndindex(1 + cumulative, 3, 3):
                    row, col = i // cols + r - 1, i % cols + c - 1
                    if 0 <= row < rows and 0 <= col < cols:
                        features = (
                            features + kernel[:, number, r, c] * (before, total)[number][row * cols + col]
                        )
                joined = linear(p, "region", case.regions[i]) + linear(p, "query", case.hidden[t])
                joined = np.tanh(joined + linear(p, "from_location", features))
                scores.append(dot(p["energy.weight"][0], joined))
            before = softmax(scores, case.real)
            total = total + before
            close(case.weights[t], before)
            close(case.context[t], weighted(before, case.regions))


# -- alignments ---------------------------------------------------------------------------------------------------


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


@sparse
def test_sparse_weights_are_those_of_bisection_for_scores_of_any_spread(name: str) -> None:
    """Some rows are masked in part."""
    fast, slow = SPARSE[name]
    scores = torch.randn(40, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    scores = scores * torch.logspace(-2, 2, 40, dtype=torch.float64)[:, None]
    scores[::3, 2] = scores[::4, 5] = -INF
    for row in scores:
        np.testing.assert_allclose(fast(row).numpy(), slow(row.numpy()), atol=1e-12)


@sparse
def test_sparse_weights_of_ties_nan_and_half_precision(name: str) -> None:
    fast = SPARSE[name][0]
    close(fast(torch.tensor([1.0, -INF, 1.0, 1.0], dtype=torch.float64)), [1 / 3, 0, 1 / 3, 1 / 3])
    tied = fast(torch.tensor([0.3, 0.3, 0.1, 0.1, -0.4], dtype=torch.float64))
    assert tied[0] == tied[1] > tied[2] == tied[3]
    assert fast(torch.tensor([4.0, -INF]))[0] == 1  # a single region
    scores = torch.tensor([[1.0, NAN, 2.0], [-INF, -INF, -INF], [1.0, 2.0, 9.0]])
    assert torch.equal(fast(scores).isnan(), scores.softmax(-1).isnan())
    low = torch.tensor([3.0, -1.0, 3.5], dtype=torch.bfloat16)
    assert fast(low).dtype == torch.float32
    close(fast(low), fast(low.float()))


def within(real: np.ndarray, centre: np.ndarray, reach: float) -> list[bool]:
    """The real cells within `reach` of the centre, in rows and in columns; all real ones if there are none."""
    near = [
        abs(i // COLS - centre[0]) <= reach and abs(i % COLS - centre[1]) <= reach for i in range(len(real))
    ]
    inside = [bool(is_near and is_real) for is_near, is_real in zip(near, real, strict=True)]
    assert sum(inside) < len(real)
    return inside if any(inside) else list(real)


def predicted_window(p: Weights, name: str, scores: Vector, case: Case) -> Vector:
    """Luong et al. 2015, eqs. 9 and 10, in two dimensions: p = (rows - 1, cols - 1) σ(V tanh(W h + b) + c); weights in
    the window times exp(-‖x - p‖² / 2σ²), σ = reach / 2."""
    hidden = np.tanh(linear(p, f"{name}.centre.0", case.hidden[0]))
    centre = sigmoid(linear(p, f"{name}.centre.2", hidden)) * np.array([ROWS - 1, COLS - 1])
    weights = softmax(scores, within(case.real, centre, REACH))
    offsets = [np.array([i // COLS, i % COLS]) - centre for i in range(len(weights))]
    return np.array(
        [w * np.exp(-dot(x, x) / (2 * (REACH / 2) ** 2)) for w, x in zip(weights, offsets, strict=True)]
    )


def one_by_one(p: Weights, name: str, scores: Vector, case: Case) -> Vector:
    """α_i = σ(e_i + b): each between 0 and 1, 0 where masked, with any sum."""
    return sigmoid(scores + float(p[f"{name}.offset"])) * case.real


def bisection(name: str) -> Callable[..., Vector]:
    def weights(p: Weights, _: str, scores: Vector, case: Case) -> Vector:
        found = np.zeros(len(scores))
        found[case.real] = SPARSE[name][1](scores[case.real])
        return found

    return weights


@pytest.mark.parametrize(
    ("alignment", "equation"),
    [
        (library.Sparsemax(), bisection("sparsemax")),
        (library.Entmax15(), bisection("entmax")),
        (library.Sigmoid(), one_by_one),
        (PredictedWindow(REACH, size=3), predicted_window),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Alignment) else "",
)
def test_weights_context_and_gradients_are_those_of_the_equations(
    alignment: Alignment, equation: Any
) -> None:
    def attended(p: Weights, case: Case) -> tuple[Vector, dict[str, Any]]:
        scores = np.array([additive(p, "score", a, case.hidden[0]) for a in case.regions])
        weights = equation(p, "alignment", scores, case)
        return weighted(weights, case.regions), {"weights": weights}

    check_transcription(run(ScoredAttention(AdditiveScore(6), alignment), grids=((ROWS, COLS),)), attended)


# -- windows -------------------------------------------------------------------------------------------------------


def middle(weights: Vector) -> Vector:
    """Σ_i α_i x_i, a row and a column."""
    places = np.arange(ROWS * COLS)
    return np.array([dot(weights, places // COLS), dot(weights, places % COLS)])


@pytest.mark.parametrize("local_global", [False, True])
def test_the_centre_of_a_following_window_is_the_middle_of_its_weights_before(local_global: bool) -> None:
    """The first step sees the whole grid. With global attention beside it, the mean of both maps would differ."""
    score, window = AdditiveScore(6), FollowingWindow(1.0)
    attention = ScoredAttention(score, window)
    if local_global:
        attention = library.LocalGlobalAttention(score, window, AdditiveScore(5))
    assert attention.properties.sums_to_one
    done = run(attention, steps=3, grids=((ROWS, COLS),))
    for case in done.cases():
        inside = list(case.real)
        for t in range(3):
            name = "local.score" if local_global else "score"
            scores = [additive(done.p, name, a, case.hidden[t]) for a in case.regions]
            weights = softmax(scores, inside)
            close(case.maps[t]["local_global"][0] if local_global else case.weights[t], weights)
            inside = within(case.real, middle(weights), 1.0)


def test_the_centre_of_a_following_window_is_the_same_under_autocast() -> None:
    """Rounded to bf16, a centre moves by up to 1/32 of a cell on this grid, and cells leave the window."""
    torch.manual_seed(0)
    scores, before = torch.randn(2, 50, 196), (4 * torch.randn(2, 50, 196)).softmax(-1)
    memory = library.GridMemory(None, torch.randn(2, 196, 3), None, (14, 14))
    maps = []
    for low in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            maps.append(FollowingWindow(2.0)(scores, library.Query(scores), memory, before))
    assert torch.equal(*maps)


def test_local_and_global_attention() -> None:
    """[c_local; c_global]: a predicted window, and a softmax over everything."""

    def both(p: Weights, case: Case) -> tuple[Vector, dict[str, Any]]:
        of_local, of_everywhere = (
            np.array([additive(p, f"{name}.score", a, case.hidden[0]) for a in case.regions])
            for name in ("local", "everywhere")
        )
        local = predicted_window(p, "local.alignment", of_local, case)
        everywhere = softmax(of_everywhere, case.real)
        context = np.concatenate([weighted(local, case.regions), weighted(everywhere, case.regions)])
        return context, {"local_global": [local, everywhere], "weights": (local + everywhere) / 2}

    attention = library.LocalGlobalAttention(AdditiveScore(6), PredictedWindow(REACH, 3), AdditiveScore(5))
    assert not attention.properties.sums_to_one
    check_transcription(run(attention, grids=((ROWS, COLS),)), both)


@pytest.mark.parametrize("alignment", [PredictedWindow(1.0, 3), FollowingWindow(1.0)])
def test_a_window_over_masked_cells_alone_sees_all_real_ones(alignment: Alignment) -> None:
    """Only the last cell of a row of nine is real; the window is at the left, or where the step before has looked."""
    view = random_views([(1, 9)])[0]
    mask = torch.arange(9).expand(2, 9) == 8
    alignment.build(library.QuerySizes(HIDDEN))
    alignment.double()
    if isinstance(alignment, PredictedWindow):
        torch.nn.init.constant_(alignment.centre[2].bias, -50.0)
    memory = library.GridMemory(None, view.vectors, mask, view.grid)
    state = nn.functional.one_hot(torch.zeros(2, 2).long(), 9).double()  # has looked at the first cell
    scores = torch.randn(2, 2, 9, dtype=torch.float64).masked_fill(~mask[:, None], -INF)
    weights = alignment(scores, random_queries(1)[0], memory, state)
    assert not torch.isnan(weights).any()
    assert (weights[..., :-1] == 0).all()


# -- smoothing ----------------------------------------------------------------------------------------------------

GRID = (3, 4)
MASK = torch.tensor([[True] * 12, [number not in (1, 6, 11) for number in range(12)]])


def transcribed(energies: Tensor, width: float, mask: Tensor) -> Tensor:
    """The Gaussian mean of neighbouring scores, for one image and query, cell by cell; (L,)."""
    actual = torch.zeros(12, dtype=energies.dtype)
    for i in range(12):
        above = below = 0.0
        for j in range(12):
            if mask[j]:
                distance = (i // 4 - j // 4) ** 2 + (i % 4 - j % 4) ** 2
                nearness = math.exp(-distance / (2 * width**2))
                above, below = above + nearness * float(energies[j]), below + nearness
        actual[i] = above / below
    return actual


def test_half_precision_is_averaged_in_single_precision():
    energies = torch.randn(1, 2, 12).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        actual = smoothed(energies, GRID, 1.0)
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, smoothed(energies.float(), GRID, 1.0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("width", [0.4, 2.5])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_aligns_smoothed_scores(masked: bool, width: float):
    attention = ScoredAttention(GivenScores(), Softmax(), smoothing=width)
    attention.build((5,), library.QuerySizes(hidden=12))
    mask = MASK if masked else None
    memory = attention.project((Regions(torch.randn(2, 12, 5).double(), GRID, mask),))
    energies = torch.randn(2, 3, 12, dtype=torch.float64, requires_grad=True)
    output = attention(library.Query(energies), memory)
    for image in range(2):
        real = MASK[image] if masked else torch.ones(12, dtype=torch.bool)
        for query in range(3):
            wanted = transcribed(energies[image, query].detach(), width, real)
            wanted = wanted.masked_fill(~real, -torch.inf).softmax(-1)
            torch.testing.assert_close(output.weights[image, query], wanted)
    output.context.sum().backward()
    assert energies.grad.isfinite().all()
    assert (energies.grad != 0).any()


# -- states, and maps of the callers -------------------------------------------------------------------------------


def test_the_states_of_score_and_alignment_are_those_of_the_maps_that_were_read() -> None:
    attention = ScoredAttention(library.LocationSensitiveScore(6, 2, 3), FollowingWindow(1.0))
    done, onto = run(attention), torch.eye(6, dtype=torch.float64)[5]
    owner = SimpleNamespace(attentions={"attention": attention})
    with edit_maps(owner, lambda weights, step, grid: onto, [(2, 3)]):
        state = attention(done.queries[0], done.memory, attention.start(done.memory, 2)).state
    close(state.score, onto.expand(2, 2, 1, 6))
    close(state.alignment, onto.expand(2, 2, 6))


def test_maps_of_the_callers_are_read_as_they_are_and_nothing_is_sampled() -> None:
    attention = ScoredAttention(GivenScores(), library.Multinoulli(expectation=0.0)).train()
    attention.build((2,), library.QuerySizes(3))
    memory = attention.project(one_row(torch.tensor([[[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]])))
    maps = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.0, 2.0]]])
    before = torch.get_rng_state()
    reading = attention.read(maps, library.Query(torch.zeros(1, 2, 3)), memory)
    assert torch.equal(torch.get_rng_state(), before)
    assert reading.context.tolist() == [[[0.5, 0.5], [10.0, 10.0]]]
    assert reading.location is None
    assert reading.log_prob is None
