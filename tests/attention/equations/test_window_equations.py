"""Location-wise attention: windows against PyTorch's grid_sample, glimpses against the exact gradient of a Gaussian."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.loops import HIDDEN, close, dot, linear, random_queries, random_views, run, sigmoid
from torch import Tensor
from torch.nn import functional

from caption.attention import GlimpseAttention, Query, QuerySizes, WindowAttention
from caption.attention.glimpse import window
from caption.regions import Regions


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
    p = done.p
    centres = torch.zeros(2, 2, 2, dtype=torch.float64)
    sizes = torch.zeros(2, 2, 1, dtype=torch.float64)
    for (b, k), case in zip(np.ndindex(2, 2), done.cases(), strict=True):
        x, y, size = sigmoid(linear(p, "place", case.hidden[0]))
        centres[b, k] = torch.tensor([x, y])
        sizes[b, k] = 0.4 * size
    expected = sampled_by_torch(done.views[0], centres, sizes, points)
    close(done.outputs[0].context, expected)


def test_a_window_at_every_place_of_the_grid_and_beyond() -> None:
    view = random_views([(4, 6)], masked=False)[0]
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(2, 50, 2, generator=generator, dtype=torch.float64) * 1.2 - 0.1
    sizes = torch.rand(2, 50, 1, generator=generator, dtype=torch.float64) * 0.5
    weights = window(centres, sizes, 3, (4, 6))
    close(weights.sum(-1), np.ones((2, 50)))
    close(weights @ view.vectors, sampled_by_torch(view, centres, sizes, 3))


def test_masked_cells_leave_their_share_to_the_others() -> None:
    centre = torch.tensor([[[0.625, 0.5]], [[0.1, 0.5]]], dtype=torch.float64)
    none = torch.zeros(2, 1, 1, dtype=torch.float64)
    mask = torch.tensor([[False, True, True], [False, True, True]])
    # Over 3 cells, 0.625 lies 0.375 of a cell to the right of the second; 0.1 on the first, which is masked.
    close(window(centre, none, 1, (1, 3), mask)[:, 0], [[0, 0.625, 0.375], [0, 0.5, 0.5]])
    partly = torch.tensor([[True, True, False]] * 2)
    close(window(centre, none, 1, (1, 3), partly)[:, 0], [[0, 1, 0], [1, 0, 0]])


# -- glimpses ------------------------------------------------------------------------------------------------------


def glimpse(**options: float) -> GlimpseAttention:
    attention = GlimpseAttention(expectation=0.0, **options)  # type: ignore[arg-type]
    attention.build((4,), QuerySizes(HIDDEN))
    attention.double().train()
    torch.manual_seed(1)
    torch.nn.init.normal_(attention.place.weight, std=0.2)
    torch.nn.init.normal_(attention.place.bias, std=0.2)
    return attention


def draw(attention: GlimpseAttention, view: Regions, query: Query) -> tuple[Tensor, Tensor, Tensor]:
    """Context, point and log-density, from drawn points."""
    memory = attention.project((view,))
    output = attention(query, memory, attention.start(memory, query.hidden.shape[1]))
    assert output.location is not None
    assert output.log_prob is not None
    return output.context, output.location, output.log_prob


def test_a_glimpse_reads_at_its_point_and_knows_its_density() -> None:
    torch.manual_seed(0)
    view, query = random_views([(4, 6)], masked=False)[0], random_queries(1)[0]
    attention = glimpse(deviation=0.1, points=2, size=0.1)
    context, point, log_prob = draw(attention, view, query)
    close(context.detach(), sampled_by_torch(view, point, torch.full((2, 2, 1), 0.1, dtype=torch.float64), 2))
    p = {name: value.detach().numpy() for name, value in attention.named_parameters()}
    for b, k in np.ndindex(2, 2):
        mean = sigmoid(linear(p, "place", query.hidden[b, k].numpy()))
        squared = sum((float(point[b, k, axis]) - mean[axis]) ** 2 for axis in (0, 1))
        close(log_prob[b, k], -squared / (2 * 0.1**2) - np.log(2 * np.pi * 0.1**2))


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
    _, point, log_prob = draw(attention, view, Query(queries))
    x, y = point.detach().unbind(-1)
    assert x.min() > 0  # nothing was moved to the grid's edge
    assert max(x.max(), y.max()) < 1
    reward = 3 * x - 2 * y + 5 * (x - 0.3) ** 2 - 4 * (y - 0.7) ** 2 + 6 * x * y
    ((reward - 2.0) * log_prob).sum().backward()  # any constant baseline
    assert queries.grad is not None
    estimates = queries.grad[0].numpy()  # (samples, H)
    p = {name: value.detach().numpy() for name, value in attention.named_parameters()}
    mean = sigmoid(linear(p, "place", hidden[0, 0].numpy()))
    by_mean = np.array([3 + 10 * (mean[0] - 0.3) + 6 * mean[1], -2 - 8 * (mean[1] - 0.7) + 6 * mean[0]])
    exact = [dot(by_mean * mean * (1 - mean), p["place.weight"][:, n]) for n in range(HIDDEN)]
    for n in range(HIDDEN):
        error = estimates[:, n].std() / np.sqrt(samples)
        assert abs(estimates[:, n].mean() - exact[n]) < 1.96 * error
        assert abs(exact[n]) > 4 * error  # and it would notice a gradient of 0


def test_the_reading_has_no_gradient_by_the_point() -> None:
    attention = glimpse(deviation=0.1)
    query = random_queries(1)[0]
    context, _, _ = draw(attention, random_views([(4, 6)])[0], query)
    context.sum().backward()
    assert attention.place.weight.grad is not None
    assert (attention.place.weight.grad == 0).all()


def test_points_beyond_the_grid_are_moved_to_its_edge() -> None:
    torch.manual_seed(0)
    view, query = random_views([(4, 6)], masked=False)[0], random_queries(1)[0]
    attention = glimpse(deviation=3.0, points=1, size=0.0)
    context, point, _ = draw(attention, view, query)
    assert bool(((point == 0) | (point == 1)).any())
    assert bool(((point >= 0) & (point <= 1)).all())
    close(context, sampled_by_torch(view, point, torch.zeros(2, 2, 1, dtype=torch.float64), 1))


@pytest.mark.parametrize("at_test", ["expectation", "argmax"])
def test_outside_training_it_reads_at_the_mean(at_test: str) -> None:
    attention = GlimpseAttention(points=2, size=0.1, at_test=at_test)  # type: ignore[arg-type]
    done = run(attention, masked=False)
    centres = torch.tensor(
        np.array([sigmoid(linear(done.p, "place", case.hidden[0])) for case in done.cases()])
    ).view(2, 2, 2)
    expected = sampled_by_torch(done.views[0], centres, torch.full((2, 2, 1), 0.1, dtype=torch.float64), 2)
    close(done.outputs[0].context, expected)
    assert torch.isnan(done.outputs[0].location).all()
    assert (done.outputs[0].log_prob == 0).all()
