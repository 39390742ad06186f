"""Poolings worked out by hand, and stochastic pooling against its expectation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from helpers.loops import Case, Vector, bins, check_transcription, close, linear, run
from torch import Tensor

from caption import attention as library
from caption.attention import (
    ChunkMaxPooling,
    FixedMap,
    KMaxPooling,
    NoContext,
    StochasticPooling,
    TopKMeanPooling,
)
from caption.core.errors import UserError
from caption.core.regions import Regions

#: Five regions of two features; the fourth is masked.
REGIONS = torch.tensor([[1.0, 8.0], [3.0, 0.0], [2.0, 2.0], [9.0, 9.0], [6.0, 4.0]], dtype=torch.float64)
REAL = torch.tensor([True, True, True, False, True])


def pooled(
    pooling: Any, regions: Tensor = REGIONS, real: Tensor | None = REAL, training: bool = False
) -> tuple[Any, Any]:
    """Context and weights of the first query of one image."""
    mask = None if real is None else real.expand(2, -1)
    done = run(pooling, views=(Regions(regions.expand(2, -1, -1), (1, len(regions)), mask),))
    if training:
        output = pooling.train()(done.queries[0], done.memory)
    else:
        output = done.outputs[0]
        assert (output.context == output.context[0, 0]).all()  # the query is ignored
    return output.context[0, 0], output.weights[0, 0]


@pytest.mark.parametrize(
    ("pooling", "context", "weights"),
    [
        (library.MeanPooling(), [3.0, 3.5], [0.25, 0.25, 0.25, 0, 0.25]),
        (library.SumPooling(), [12.0, 14.0], [1, 1, 1, 0, 1]),
        (library.MaxPooling(), [6.0, 8.0], [0.5, 0, 0, 0, 0.5]),
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


def test_of_equal_values_the_first_ones_are_taken() -> None:
    """Behind a ReLU many values are 0: which ones are taken must not depend on the machine."""
    regions = torch.tensor([[0.0], [0.0], [5.0], [0.0], [0.0], [3.0], [0.0]], dtype=torch.float64)
    context, weights = pooled(KMaxPooling(4), regions, None)
    close(context, [0.0, 0.0, 5.0, 3.0])
    close(weights, [0.25, 0.25, 0.25, 0, 0, 0.25, 0])
    for pooling in (KMaxPooling(8), TopKMeanPooling(8)):
        said = rf"k 8 of {type(pooling).__name__} is more than the 7 regions of an image: take a smaller k"
        with pytest.raises(UserError, match=said):
            pooled(pooling, regions, None)


@pytest.mark.parametrize("pooled_by", ["max", "mean"])
@pytest.mark.parametrize("grid", [(4, 8), (3, 5), (1, 2)], ids=str)
def test_spatial_pyramid_pooling(grid: tuple[int, int], pooled_by: Any) -> None:
    """A region's weight is its share of what the bins read."""

    def pyramid(p: object, case: Case) -> tuple[Vector, dict[str, Any]]:
        context, counts = [], np.zeros(len(case.regions))
        for cells in (cells for n in (1, 2, 4) for cells in bins(grid, n, case.real)):
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

    check_transcription(run(library.SpatialPyramidPooling((1, 2, 4), pooled_by), grids=(grid,)), pyramid)


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

    done = run(library.DeepSets(library.MaxPooling() if maximum else library.SumPooling(), 3))
    assert done.attention.properties.sums_to_one == maximum
    check_transcription(done, deep_set)


@pytest.mark.parametrize("training", [False, True])
def test_a_feature_of_zeros_stays_zero_and_has_no_share_of_the_map(training: bool) -> None:
    """An image of zeros has an even map."""
    for features, weights in [
        ([1.0, 0.0], [1 / 12, 3 / 12, 2 / 12, 0, 6 / 12]),
        ([0.0, 0.0], [0.25, 0.25, 0.25, 0, 0.25]),
    ]:
        context, seen = pooled(StochasticPooling(), REGIONS * torch.tensor(features), training=training)
        close(context[1], 0.0)
        close(seen, weights)


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
    with pytest.raises(UserError, match=r"side 4 of FixedMap.*1x5"):
        run(FixedMap(4), views=(Regions(REGIONS.expand(2, -1, -1), (1, 5), None),))


def test_no_context_is_zero_whatever_the_map() -> None:
    output = run(
        NoContext(), views=(Regions(REGIONS.expand(2, -1, -1), (1, 5), REAL.expand(2, -1)),)
    ).outputs[0]
    torch.testing.assert_close(output.weights, (REAL.double() / REAL.sum()).expand_as(output.weights))
    assert output.context.shape[-1] == REGIONS.shape[-1]
    assert not output.context.any()
