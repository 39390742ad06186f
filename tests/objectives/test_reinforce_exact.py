"""The estimator's expectation is the gradient of the bound L_s, by enumerating every path of locations."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from caption.attention import AdditiveScore, Multinoulli, ScoredAttention
from caption.decoders import DeepOutput, Gate, InitialState, LSTMDecoder, Unrolled
from caption.objectives import Reinforce

REGIONS, WORDS = 3, 5


class Replayed(Multinoulli):
    """Looks where it is told: `path` holds the locations (B, K) of each step, B and K as large as they come."""

    path: list[Tensor]

    def _choose(self, weights: Tensor) -> Tensor:
        images, captions, _ = weights.shape
        return self.path.pop(0)[:images, :captions]


def toy() -> LSTMDecoder:
    alignment = Replayed(expectation=0.0)
    attention = ScoredAttention(AdditiveScore(4), alignment)
    made = LSTMDecoder(
        attention, 3, 4, InitialState(dropout=0), gate=Gate(), readout=DeepOutput(dropout=0), dropout=0
    )
    made.build(region_size=2, vocabulary_size=WORDS, padding=0, start=1)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(1.5 * torch.randn(parameter.shape, generator=generator))
    return made.double().train()


def paths(lengths: Tensor) -> Iterator[list[Tensor]]:
    """Every combination of locations at the real steps of captions in order of falling length."""
    images, captions = lengths.shape
    steps = int(lengths.max())
    cells = [
        (t, b, k) for t in range(steps) for b in range(images) for k in range(captions) if t < lengths[b, k]
    ]
    for locations in itertools.product(range(REGIONS), repeat=len(cells)):
        path = torch.zeros(steps, images, captions, dtype=torch.long)
        for cell, location in zip(cells, locations, strict=True):
            path[cell] = location
        yield list(path)


def gradient(value: Tensor, made: LSTMDecoder) -> Tensor:
    """Of all parameters, as one vector; 0 where there is none."""
    parameters = list(made.parameters())
    found = torch.autograd.grad(value, parameters, retain_graph=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in found])


def walk(made: LSTMDecoder, lengths: Tensor) -> Iterator[tuple[Tensor, Unrolled, Tensor]]:
    """Each path: its log-probability, what the decoder made of it, and the target words (B, K, T)."""
    generator = torch.Generator().manual_seed(6)
    regions = torch.randn(len(lengths), REGIONS, 2, generator=generator, dtype=torch.float64)
    words, targets = torch.randint(1, WORDS, (2, *lengths.shape, int(lengths.max())), generator=generator)
    for path in paths(lengths):
        made.attention.alignment.path = path
        unrolled = made(made.project(regions), words, lengths)
        assert unrolled.trace.log_prob is not None
        yield unrolled.trace.log_prob.sum(), unrolled, targets


def exact_and_expected(lengths: Tensor, objectives: list[Reinforce]) -> tuple[Tensor, list[Tensor]]:
    """The gradient of −L_s, and the expectation of each objective's gradient over all paths."""
    made = toy()
    captions = int((lengths > 0).sum())
    bound, total = torch.zeros((), dtype=torch.float64), 0.0
    expected = [torch.zeros((), dtype=torch.float64) for _ in objectives]
    for log_prob, unrolled, targets in walk(made, lengths):
        chosen = unrolled.logits.log_softmax(-1).gather(1, unrolled.pack(targets)[:, None])
        bound = bound + log_prob.exp() * chosen.sum() / captions
        weight = log_prob.exp().item()
        total += weight
        # The gradient of the weighted sum is the weighted sum of the gradients.
        expected = [
            e + weight * o(unrolled, targets).value for e, o in zip(expected, objectives, strict=True)
        ]
    assert total == pytest.approx(1.0)  # really all paths
    return gradient(-bound, made), [gradient(value, made) for value in expected]


def make(baseline: float, **options: Any) -> Reinforce:
    objective = Reinforce(reward_weight=1.0, entropy_weight=0.0, reward="sum", **options).eval()
    objective.baseline.fill_(baseline)
    return objective


@pytest.mark.parametrize("lengths", [[[3]], [[2], [1]]], ids=str)
def test_the_expectation_over_all_paths_is_the_gradient_of_the_bound(lengths: list[list[int]]):
    objectives = [
        make(baseline, credit=credit) for baseline in (0.0, -7.5) for credit in ("caption", "future")
    ]
    words_alone = make(0.0)
    words_alone.reward_weight = 0.0
    exact, (*estimates, biased) = exact_and_expected(torch.tensor(lengths), [*objectives, words_alone])
    for estimate in estimates:
        torch.testing.assert_close(estimate, exact, rtol=1e-4, atol=1e-5)
    # Without the score-function term it is another gradient: what the comparison must be able to tell apart.
    assert (biased - exact).norm() > 0.05 * exact.norm() > 0.005


def test_credit_for_the_future_lowers_the_variance():
    made, objectives = toy(), [make(0.0, credit=credit) for credit in ("caption", "future")]
    moments = [0.0, 0.0]  # the means are equal, so the second moments order the variances
    for log_prob, unrolled, targets in walk(made, torch.tensor([[2]])):
        for i, objective in enumerate(objectives):
            found = gradient(objective(unrolled, targets).value, made)
            moments[i] += log_prob.exp().item() * found.square().sum().item()
    assert moments[1] < moments[0]
