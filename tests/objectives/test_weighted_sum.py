"""Several objectives at once: the sum of what each would give."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from helpers.tiny_views import WithoutEncoder
from helpers.toy import WORDS, gradient, problem, soft_toy

from caption.objectives import (
    CrossEntropy,
    DoublyStochastic,
    Entropy,
    GuidedAttention,
    Objective,
    ScheduledSampling,
    WeightedSum,
)


def prepared(objective: Objective) -> Objective:
    torch.manual_seed(1)
    objective.build(4, (2,), WORDS)
    objective.prepare(iter([[[4, 3, 2]], [[3, 2]], [[4, 2]]]))  # can be read once only
    return objective.double()


def test_value_and_gradient_are_weighted_and_the_first_logs():
    decoder = soft_toy()
    batch = WithoutEncoder(decoder), *problem([[3, 1], [2, 2], [1, 0]])
    terms = [DoublyStochastic(), Entropy(0.3)]
    parts = [prepared(CrossEntropy(terms)), prepared(GuidedAttention(words=1, weight=3.0))]
    losses = [part(*batch) for part in parts]
    both = WeightedSum([CrossEntropy(terms), GuidedAttention(words=1, weight=3.0)], weights=[2.0, 0.25])
    loss = prepared(both)(*batch)
    torch.testing.assert_close(loss.value, 2 * losses[0].value + 0.25 * losses[1].value)
    expected = 2 * gradient(losses[0].value, decoder) + 0.25 * gradient(losses[1].value, decoder)
    torch.testing.assert_close(gradient(loss.value, decoder), expected)
    assert gradient(losses[1].value - losses[0].value, decoder).abs().max() > 0.01
    assert loss.logged == losses[1].logged | losses[0].logged
    assert loss.logged.keys() > losses[0].logged.keys()


def test_objectives_inside_are_built_and_prepared_once():
    calls = []

    class Noted(CrossEntropy):
        def build(self, *sizes: object) -> None:
            calls.append(sizes)

        def prepare(self, references: Iterable[Sequence[Sequence[int]]]) -> None:
            calls.append(list(references))

    nested = WeightedSum([ScheduledSampling(Noted()), GuidedAttention(Noted(), words=1)], [1.0, 1.0])
    prepared(nested)
    assert calls == [(4, (2,), WORDS)] * 2 + [[[[4, 3, 2]], [[3, 2]], [[4, 2]]]] * 2
