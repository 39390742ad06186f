"""Straight-through Gumbel-softmax: samples are distributed as α, the gradient is that of the relaxed sample."""

from __future__ import annotations

import pytest
import torch
from helpers.given_scores import GivenScores, attend
from torch import Tensor

from caption.attention import AttentionOutput, GumbelSoftmax, QuerySizes, ScoredAttention

PROBABILITIES = torch.tensor([0.5, 0.3, 0.15, 0.05])
REGIONS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [-1.0, 2.0]])


def gumbel(
    scores: Tensor, training: bool = True, mask: Tensor | None = None, **options: float
) -> AttentionOutput:
    attention = ScoredAttention(GivenScores(), GumbelSoftmax(**options))
    attention.build((2,), QuerySizes(4))
    attention.train(training)
    torch.manual_seed(7)
    return attend(attention, scores, REGIONS.expand(len(scores), -1, -1), mask)


def many(captions: int = 20_000) -> Tensor:
    return PROBABILITIES.log().expand(1, captions, -1)


def test_regions_are_drawn_as_often_as_the_weights_say():
    found = gumbel(many())
    frequencies = found.location.flatten().bincount(minlength=4) / 20_000
    deviation = (PROBABILITIES * (1 - PROBABILITIES) / 20_000).sqrt()
    assert ((frequencies - PROBABILITIES).abs() < 4 * deviation).all()


def test_the_context_is_the_region_that_was_drawn_and_not_a_mixture():
    found = gumbel(many(50))
    torch.testing.assert_close(found.context[0], REGIONS[found.location[0]])
    torch.testing.assert_close(found.weights, many(50).exp())


def test_there_is_no_score_function_term():
    assert gumbel(many(3)).log_prob is None
    assert gumbel(many(3), training=False).log_prob is None


@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_the_gradient_is_that_of_the_relaxed_sample(temperature: float):
    scores = torch.tensor([[[0.3, -0.2, 0.9, 0.0]]]).requires_grad_()
    gumbel(scores, temperature=temperature).context.sum().backward()
    torch.manual_seed(7)
    torch.rand((1, 1))  # the draw between samples and expectation
    noise = -torch.empty(1, 1, 4).exponential_().log()
    again = scores.detach().clone().requires_grad_()
    relaxed = ((again.log_softmax(-1) + noise) / temperature).softmax(-1)
    (relaxed @ REGIONS).sum().backward()
    torch.testing.assert_close(scores.grad, again.grad)
    assert scores.grad.abs().max() > 1e-3


def test_a_masked_region_is_never_drawn_and_leaves_no_nan():
    mask = torch.tensor([[False, True, True, False]])
    scores = torch.zeros(1, 500, 4, requires_grad=True)
    found = gumbel(scores, mask=mask)
    assert set(found.location.flatten().tolist()) == {1, 2}
    found.context.sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[..., [0, 3]] == 0).all()


def test_outside_training_it_follows_at_test():
    torch.testing.assert_close(
        gumbel(many(2), training=False).context, (PROBABILITIES @ REGIONS).expand(1, 2, -1)
    )
    found = gumbel(many(2), training=False, at_test="argmax")
    assert found.location.tolist() == [[0, 0]]
    torch.testing.assert_close(found.context, REGIONS[0].expand(1, 2, -1))


def test_the_temperature_is_above_zero():
    with pytest.raises(ValueError, match=r"temperature .* 0"):
        GumbelSoftmax(temperature=0.0)
