"""Location-wise attention: windows against PyTorch's grid_sample, glimpses against the exact gradient of a Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.loops import HIDDEN, close, dot, linear, parameters, random_queries, random_views, run, sigmoid
from torch import Tensor
from torch.nn import functional

from caption.attention import (
    AdditiveScore,
    Attention,
    AttentionOutput,
    GlimpseAttention,
    PredictedWindow,
    Query,
    QuerySizes,
    ScoredAttention,
    WindowAttention,
)
from caption.attention.glimpse import window
from caption.core.regions import Regions


def sampled_by_torch(view: Regions, centre: Tensor, size: Tensor, points: int) -> Tensor:
    """The mean of points · points bilinear samples around centres (B, K, 2), given as shares of the grid: (B, K, D)."""
    steps = np.linspace(-1, 1, points) if points > 1 else np.zeros(1)
    maps = view.vectors.mT.unflatten(-1, view.grid)
    total: Tensor | float = 0.0
    for down in steps:
        for across in steps:
            place = centre + size * torch.tensor([across, down])  # x, y
            read = functional.grid_sample(
                maps, 2 * place[:, :, None] - 1, mode="bilinear", padding_mode="border", align_corners=False
            )
            total = total + read.squeeze(-1).mT
    return total / points**2


@pytest.mark.parametrize("points", [1, 2, 3])
@pytest.mark.parametrize("grid", [(4, 6), (1, 5)])
def test_a_window_reads_what_grid_sample_reads(points: int, grid: tuple[int, int]) -> None:
    done = run(WindowAttention(points, largest=0.4), grids=(grid,), masked=False)
    places = [sigmoid(linear(done.p, "place", case.hidden[0])) for case in done.cases()]
    x_y, size = torch.tensor(np.array(places)).view(2, 2, 3).split((2, 1), -1)
    close(done.outputs[0].context, sampled_by_torch(done.views[0], x_y, 0.4 * size, points))
    # At every place of the grid, and beyond it.
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(2, 50, 2, generator=generator, dtype=torch.float64) * 1.2 - 0.1
    sizes = torch.rand(2, 50, 1, generator=generator, dtype=torch.float64) * 0.5
    weights = window(centres, sizes, points, grid)
    close(weights.sum(-1), np.ones((2, 50)))
    close(weights @ done.views[0].vectors, sampled_by_torch(done.views[0], centres, sizes, points))


def test_masked_cells_leave_their_share_to_the_others() -> None:
    centre = torch.tensor([[[0.625, 0.5]], [[0.1, 0.5]]], dtype=torch.float64)
    none = torch.zeros(2, 1, 1, dtype=torch.float64)
    mask = torch.tensor([[False, True, True], [False, True, True]])
    # Over 3 cells, 0.625 lies 0.375 of a cell to the right of the second; 0.1 on the first, which is masked.
    close(window(centre, none, 1, (1, 3), mask)[:, 0], [[0, 0.625, 0.375], [0, 0.5, 0.5]])
    partly = torch.tensor([[True, True, False]] * 2)
    close(window(centre, none, 1, (1, 3), partly)[:, 0], [[0, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize(
    ("attention", "bound"),
    [
        (WindowAttention(), 0.02),
        (GlimpseAttention(), 0.02),
        (ScoredAttention(AdditiveScore(8), PredictedWindow()), 0.005),
    ],
    ids=["window", "glimpse", "predicted"],
)
def test_predicted_positions_stay_in_single_precision_under_autocast(
    attention: Attention, bound: float
) -> None:
    """Weights differ from those without autocast by the rounding of the layer that predicts. With a position in bf16
    they would differ four times as much, because cells of this grid are only 1/14 wide."""
    torch.manual_seed(0)
    attention.build((8,), QuerySizes(32))
    attention.train()
    view, query = Regions(torch.randn(16, 196, 8), (14, 14)), Query(torch.randn(16, 5, 32))
    outputs = []
    for low in (False, True):
        torch.manual_seed(1)
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            outputs.append(look(attention, view, query))
    single, half = outputs
    assert half.weights.dtype == torch.float32
    errors = (half.weights - single.weights).abs().sum(-1) / single.weights.sum(-1)
    assert errors.median() < bound
    if attention.properties.sums_to_one:
        assert (half.weights.sum(-1) - 1).abs().max() < 1e-5
    if half.log_prob is not None:
        assert half.log_prob.dtype == half.location.dtype == torch.float32


# -- glimpses ------------------------------------------------------------------------------------------------------


def glimpse(**options: float) -> GlimpseAttention:
    attention = GlimpseAttention(expectation=0.0, **options)  # type: ignore[arg-type]
    attention.build((4,), QuerySizes(HIDDEN))
    attention.double().train()
    torch.manual_seed(1)
    torch.nn.init.normal_(attention.place.weight, std=0.2)
    torch.nn.init.normal_(attention.place.bias, std=0.2)
    return attention


def look(attention: Attention, view: Regions, query: Query) -> AttentionOutput:
    memory = attention.project((view,))
    return attention(query, memory, attention.start(memory, query.hidden.shape[1]))


@pytest.mark.parametrize(("deviation", "points", "size"), [(0.1, 2, 0.1), (3.0, 1, 0.0)])
def test_a_glimpse_reads_at_its_point_and_knows_its_density(
    deviation: float, points: int, size: float
) -> None:
    """Points beyond the grid are moved to its edge. The reading has no gradient by the point. Outside training it reads
    at the mean, unless told to sample."""
    torch.manual_seed(0)
    view, query = random_views([(4, 6)], masked=False)[0], random_queries(1)[0]
    attention = glimpse(deviation=deviation, points=points, size=size)
    sizes = torch.full((2, 2, 1), size, dtype=torch.float64)
    output = look(attention, view, query)
    point = output.location
    assert ((point >= 0) & (point <= 1)).all()
    assert ((point == 0) | (point == 1)).any() == (deviation == 3.0)
    close(output.context, sampled_by_torch(view, point, sizes, points))
    p = parameters(attention)
    means = np.array([[sigmoid(linear(p, "place", h)) for h in rows] for rows in query.hidden.numpy()])
    if deviation < 1:
        squared = ((point.numpy() - means) ** 2).sum(-1)
        close(output.log_prob, -squared / (2 * deviation**2) - np.log(2 * np.pi * deviation**2))
    output.context.sum().backward()
    assert not attention.place.weight.grad.any()
    attention.eval()
    for attention.at_test in ("expectation", "argmax"):
        output = look(attention, view, query)
        close(output.context, sampled_by_torch(view, torch.tensor(means), sizes, points))
        assert torch.isnan(output.location).all()
        assert (output.log_prob == 0).all()


def test_the_score_function_gradient_is_that_of_the_expected_reward() -> None:
    """The reward r(x, y) = 3x - 2y + 5 (x - 0.3)² - 4 (y - 0.7)² + 6xy has the expectation r(μ) + (5 - 4) σ², so that
    its gradient by μ is (3 + 10 (μ_x - 0.3) + 6 μ_y, -2 - 8 (μ_y - 0.7) + 6 μ_x). The estimate is (r - b) ∂log p / ∂h;
    its mean over many samples must lie within the 95 % interval around the exact gradient."""
    samples, deviation = 200_000, 0.05
    attention = glimpse(deviation=deviation)
    view = random_views([(4, 6)], masked=False)[0]
    view = view._replace(vectors=view.vectors[:1])
    hidden = random_queries(1)[0].hidden[:1, :1]
    queries = hidden.expand(1, samples, -1).clone().requires_grad_()
    torch.manual_seed(1)
    output = look(attention, view, Query(queries))
    x, y = output.location.detach().unbind(-1)
    assert x.min() > 0  # nothing was moved to the grid's edge
    assert max(x.max(), y.max()) < 1
    reward = 3 * x - 2 * y + 5 * (x - 0.3) ** 2 - 4 * (y - 0.7) ** 2 + 6 * x * y
    ((reward - 2.0) * output.log_prob).sum().backward()  # any constant baseline
    assert queries.grad is not None
    estimates = queries.grad[0].numpy()  # (samples, H)
    p = parameters(attention)
    mean = sigmoid(linear(p, "place", hidden[0, 0].numpy()))
    by_mean = np.array([3 + 10 * (mean[0] - 0.3) + 6 * mean[1], -2 - 8 * (mean[1] - 0.7) + 6 * mean[0]])
    exact = [dot(by_mean * mean * (1 - mean), p["place.weight"][:, n]) for n in range(HIDDEN)]
    for n in range(HIDDEN):
        error = estimates[:, n].std() / np.sqrt(samples)
        assert abs(estimates[:, n].mean() - exact[n]) < 1.96 * error
        assert abs(exact[n]) > 4 * error  # and it would notice a gradient of 0
