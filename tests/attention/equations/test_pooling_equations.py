"""Poolings worked out by hand, and stochastic pooling against its expectation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.loops import Case, Vector, check_transcription, close, linear, run
from torch import Tensor

from caption.attention import (
    ChunkMaxPooling,
    DeepSets,
    FixedMap,
    KMaxPooling,
    MaxPooling,
    MeanPooling,
    SpatialPyramidPooling,
    StochasticPooling,
    SumPooling,
    TopKMeanPooling,
)
from caption.errors import UserError
from caption.regions import Regions

#: Five regions of two features; the fourth is masked.
REGIONS = torch.tensor([[1.0, 8.0], [3.0, 0.0], [2.0, 2.0], [9.0, 9.0], [6.0, 4.0]], dtype=torch.float64)
REAL = torch.tensor([True, True, True, False, True])


def pooled(pooling: Any, regions: Tensor = REGIONS, real: Tensor | None = REAL) -> tuple[Any, Any]:
    """Context and weights of the first query of one image."""
    both = regions.expand(2, -1, -1)
    mask = None if real is None else real.expand(2, -1)
    output = run(pooling, views=(Regions(both, (1, len(regions)), mask),)).outputs[0]
    assert torch.equal(
        output.context, output.context[:1, :1].expand_as(output.context)
    )  # the query is ignored
    return output.context[0, 0], output.weights[0, 0]


@pytest.mark.parametrize(
    ("pooling", "context", "weights"),
    [
        (MeanPooling(), [3.0, 3.5], [0.25, 0.25, 0.25, 0, 0.25]),
        (SumPooling(), [12.0, 14.0], [1, 1, 1, 0, 1]),
        (MaxPooling(), [6.0, 8.0], [0.5, 0, 0, 0, 0.5]),
        # The two largest of each feature, in their order: 3 and 6, 8 and 4.
        (KMaxPooling(2), [3.0, 8.0, 6.0, 4.0], [0.25, 0.25, 0, 0, 0.5]),
        # All four real ones, and 0 for the fifth.
        (KMaxPooling(5), [1, 8, 3, 0, 2, 2, 6, 4, 0, 0], [0.25, 0.25, 0.25, 0, 0.25]),
        (TopKMeanPooling(2), [4.5, 6.0], [0.25, 0.25, 0, 0, 0.5]),
        (TopKMeanPooling(5), [3.0, 3.5], [0.25, 0.25, 0.25, 0, 0.25]),
        # Chunks of 3 and 2 regions: maxima (3, 8) and (6, 4).
        (ChunkMaxPooling(2), [3.0, 8.0, 6.0, 4.0], [0.25, 0.25, 0, 0, 0.5]),
        # Chunks of 1, 1, 1, 1 and 1: the masked one gives zeros.
        (ChunkMaxPooling(5), [1, 8, 3, 0, 2, 2, 0, 0, 6, 4], [0.25, 0.25, 0.25, 0, 0.25]),
        # More chunks than regions: the last ones are empty.
        (ChunkMaxPooling(7), [1, 8, 3, 0, 2, 2, 0, 0, 6, 4, 0, 0, 0, 0], [0.25, 0.25, 0.25, 0, 0.25]),
        # p = (1, 3, 2, 6) / 12 and (8, 0, 2, 4) / 14; Σ p a = 50 / 12 and 84 / 14.
        (
            StochasticPooling(),
            [50 / 12, 6.0],
            [(1 / 12 + 8 / 14) / 2, 3 / 24, (2 / 12 + 2 / 14) / 2, 0, (6 / 12 + 4 / 14) / 2],
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, torch.nn.Module) else "",
)
def test_by_hand(pooling: Any, context: list[float], weights: list[float]) -> None:
    given, seen = pooled(pooling)
    close(given, context)
    close(seen, weights)


def test_k_max_pooling_is_its_definition() -> None:
    """Kalchbrenner et al. 2014, section 3.2: the subsequence of the k largest values, in their original order; here
    with less than k real regions, too, and the mean of the same values."""

    def largest(case: Case, k: int) -> list[list[float]]:
        """The k largest real values of each feature."""
        chosen = []
        for values in case.regions.T:
            real = [i for i in range(len(values)) if case.real[i]]
            ranked = sorted(real, key=lambda i: -values[i])[:k]
            chosen.append([values[i] for i in sorted(ranked)])
        return chosen

    def k_max(p: object, case: Case) -> tuple[Vector, dict[str, Any]]:
        padded = [values + [0.0] * (6 - len(values)) for values in largest(case, 6)]
        return np.array(padded).T.flatten(), {}

    def mean(p: object, case: Case) -> tuple[Vector, dict[str, Any]]:
        return np.array([sum(values) / len(values) for values in largest(case, 4)]), {}

    check_transcription(run(KMaxPooling(6)), k_max)
    check_transcription(run(TopKMeanPooling(4)), mean)


def test_of_equal_values_the_first_ones_are_taken() -> None:
    """Behind a ReLU many values are 0: which ones are taken must not depend on the machine."""
    regions = torch.tensor([[0.0], [0.0], [5.0], [0.0], [0.0], [3.0], [0.0]], dtype=torch.float64)
    context, weights = pooled(KMaxPooling(4), regions, None)
    close(context, [0.0, 0.0, 5.0, 3.0])
    close(weights, [0.25, 0.25, 0.25, 0, 0, 0.25, 0])


@pytest.mark.parametrize("pooling", [KMaxPooling(7), TopKMeanPooling(7)])
def test_more_values_than_regions_are_refused(pooling: Any) -> None:
    said = rf"k 7 of {type(pooling).__name__} is more than the 6 regions of an image: take a smaller k"
    with pytest.raises(UserError, match=said):
        run(pooling)


@pytest.mark.parametrize("pooled_by", ["max", "mean"])
@pytest.mark.parametrize("grid", [(4, 8), (3, 5), (1, 2)], ids=str)
def test_spatial_pyramid_pooling(grid: tuple[int, int], pooled_by: Any) -> None:
    """He et al. 2015, section 2.2: bin (i, j) of n by n has the cells from ⌊i · rows / n⌋ to ⌈(i + 1) · rows / n⌉, and
    columns likewise. A region's weight is its share of what the bins read."""
    rows, cols = grid

    def pyramid(p: object, case: Case) -> tuple[Vector, dict[str, Any]]:
        context, counts = [], np.zeros(rows * cols)
        for n in (1, 2, 4):
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
                    for values in case.regions.T:
                        if not cells:
                            context.append(0.0)
                        elif pooled_by == "max":
                            best = max(cells, key=lambda cell: values[cell])
                            context.append(values[best])
                            counts[best] += 1
                        else:
                            context.append(sum(values[cell] for cell in cells) / len(cells))
                            counts[cells] += 1 / len(cells)
        return np.array(context), {"weights": counts / counts.sum()}

    done = run(SpatialPyramidPooling((1, 2, 4), pooled_by), grids=(grid,))
    assert done.outputs[0].context.shape[-1] == 21 * 4
    check_transcription(done, pyramid)


@pytest.mark.parametrize("maximum", [False, True], ids=["sum", "PointNet"])
def test_deep_sets(maximum: bool) -> None:
    """ρ(Σ φ(a)) or ρ(max φ(a)) with φ = ReLU(W a + b), ρ = W'' ReLU(W' x + b') + b'' (Zaheer et al. 2017, theorem 2; Qi
    et al. 2017, eq. 1)."""

    def deep_set(p: dict[str, Vector], case: Case) -> tuple[Vector, dict[str, Any]]:
        real = [i for i in range(len(case.regions)) if case.real[i]]
        of_regions = {i: np.maximum(linear(p, "inner.0", case.regions[i]), 0) for i in real}
        weights = np.array([float(i in real) for i in range(len(case.regions))])
        pooled = np.sum(list(of_regions.values()), 0)
        if maximum:
            sums = {i: linear(p, "inner.0", case.regions[i]) for i in real}
            first = [max(real, key=lambda i, n=n: sums[i][n]) for n in range(3)]
            pooled = np.array([of_regions[i][n] for n, i in enumerate(first)])
            weights = np.array([first.count(i) / 3 for i in range(len(case.regions))])
        return linear(p, "outer.2", np.maximum(linear(p, "outer.0", pooled), 0)), {"weights": weights}

    done = run(DeepSets(MaxPooling() if maximum else SumPooling(), 3))
    assert done.attention.properties.sums_to_one == maximum
    check_transcription(done, deep_set)


def test_a_feature_that_is_zero_everywhere_stays_zero_and_has_no_share_of_the_map() -> None:
    regions = REGIONS.clone()
    regions[:, 1] = 0
    for training in (False, True):
        attention = StochasticPooling()
        context, weights = pooled(attention, regions)
        attention.train(training)
        close(context[1], 0.0)
        close(weights, [1 / 12, 3 / 12, 2 / 12, 0, 6 / 12])


def test_an_image_of_zeros_has_an_even_map() -> None:
    context, weights = pooled(StochasticPooling(), torch.zeros_like(REGIONS))
    close(context, [0.0, 0.0])
    close(weights, [0.25, 0.25, 0.25, 0, 0.25])


def test_the_mean_of_stochastic_pooling_is_its_expectation() -> None:
    """Each feature comes from a region drawn with p = a / Σ a; over many draws the mean is Σ p a, within 4 standard
    errors, and each region is read as often as p says."""
    many = 20000
    attention = StochasticPooling()
    attention.build((2,), None)  # type: ignore[arg-type]
    view = Regions(REGIONS.expand(many, -1, -1), (1, 5), REAL.expand(many, -1))
    memory = attention.project((view,))
    torch.manual_seed(0)
    attention.train()
    drawn = attention.pool(memory.values[:, None], memory.keys[:, None], memory.grid).squeeze(1)  # (many, 2)
    for feature, (p, expectation) in enumerate(
        [(np.array([1, 3, 2, 0, 6]) / 12, 50 / 12), (np.array([8, 0, 2, 0, 4]) / 14, 6.0)]
    ):
        values = drawn[:, feature].numpy()
        error = values.std() / np.sqrt(many)
        assert abs(values.mean() - expectation) < 4 * error
        for i in range(5):
            if p[i]:
                share = (values == REGIONS[i, feature].item()).mean()
                assert abs(share - p[i]) < 4 * np.sqrt(p[i] * (1 - p[i]) / many)
        assert set(values) == {REGIONS[i, feature].item() for i in range(5) if p[i]}


def test_a_fixed_map_is_the_softmax_of_its_cells_without_the_masked_ones() -> None:
    case = run(FixedMap(6), views=(Regions(REGIONS.expand(2, -1, -1), (1, 5), REAL.expand(2, -1)),))
    weights = case.attention.bias.detach()[0, :5].masked_fill(~REAL, -torch.inf).softmax(0)
    output = case.outputs[0]
    torch.testing.assert_close(output.weights, weights.expand_as(output.weights))
    torch.testing.assert_close(output.context, (weights @ REGIONS).expand_as(output.context))
    with pytest.raises(
        UserError, match="side 4 of FixedMap is too small for a grid of 1x5 regions: make it 5"
    ):
        run(FixedMap(4), views=(Regions(REGIONS.expand(2, -1, -1), (1, 5), None),))
