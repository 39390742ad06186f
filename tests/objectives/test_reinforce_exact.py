"""The expectation of every unbiased estimator over all paths equals the gradient of the bound L_s."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.exact_paths import every_path, fixed_paths
from helpers.tiny_views import WithoutEncoder
from helpers.toy import REGIONS, gradient, problem, toy
from torch import Tensor

from caption.core.tensor_tree import select_images
from caption.objectives import (
    Baseline,
    CaptionBatch,
    Critic,
    GreedyAttentionBaseline,
    LeaveOneOut,
    MovingAverage,
    NoBaseline,
    Reinforce,
)


def moving_average() -> MovingAverage:
    baseline = MovingAverage()
    baseline.value.fill_(-7.5)
    return baseline


def critic() -> Critic:
    baseline = Critic(3)
    baseline.build(4)
    with torch.no_grad():
        for parameter in baseline.parameters():
            parameter.copy_(2 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)))
    return baseline.double()


def unbiased(baseline: Baseline, **options: Any) -> Reinforce:
    """An unbiased estimator, with a fixed baseline."""
    return Reinforce(baseline, **{"reward_weight": 1.0, "reward": "sum", "terms": [], **options}).eval()


def exact(lengths: list[list[int]]) -> Tensor:
    """∂(−L_s), averaged over captions."""
    decoder = toy()
    total = torch.tensor(0.0)
    captions = [(b, k) for b, row in enumerate(lengths) for k, length in enumerate(row) if length]
    views, all_captions = problem(lengths)
    for b, k in captions:
        one_image = select_images(views, torch.tensor([b]))
        one = CaptionBatch(*(part[b : b + 1, k : k + 1] for part in all_captions))
        total = total - every_path(decoder, one_image, one).bound / len(captions)
    return gradient(total, decoder)


def expected(objective: Reinforce, lengths: list[list[int]]) -> Tensor:
    """The expectation of the objective's gradient over the paths of all samples of all captions."""
    decoder = toy()
    views, captions = problem(lengths)
    shape = (len(lengths), len(lengths[0]) * objective.samples)
    longest = int(captions.lengths.max())
    total, mean = 0.0, torch.zeros((), dtype=torch.float64)
    for numbers in itertools.product(range(REGIONS**longest), repeat=shape[0] * shape[1]):
        with fixed_paths(decoder, torch.tensor(numbers).view(shape)):
            loss = objective(WithoutEncoder(decoder), views, captions)
        assert loss.unrolled.trace.log_prob is not None
        probability = loss.unrolled.trace.log_prob.sum().exp().item()
        total += probability
        mean = mean + probability * loss.value  # the gradient of the mean is the mean of the gradients
    # Paths of captions shorter than the longest occur several times.
    shorter = sum(longest - length for row in lengths for length in row) * objective.samples
    assert total == pytest.approx(REGIONS**shorter)  # all paths are covered
    return gradient(mean / total, decoder)


@pytest.mark.slow
@pytest.mark.parametrize("credit", ["caption", "future"])
@pytest.mark.parametrize(
    ("baseline", "samples", "lengths"),
    [
        (NoBaseline, 1, [[3]]),
        (moving_average, 1, [[2], [1]]),
        (critic, 1, [[2], [1]]),
        (critic, 2, [[2]]),
        (LeaveOneOut, 2, [[2]]),
        (GreedyAttentionBaseline, 1, [[3]]),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_the_expectation_is_the_gradient_of_the_bound(
    baseline: Callable[[], Baseline], samples: int, lengths: list[list[int]], credit: str
):
    objective = unbiased(baseline(), samples=samples, credit=credit)
    torch.testing.assert_close(expected(objective, lengths), exact(lengths), rtol=1e-4, atol=1e-6)
