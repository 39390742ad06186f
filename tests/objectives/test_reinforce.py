"""The score-function estimator, each term worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from helpers.hand_unrolled import logits_of, loss_of, uniform, unrolled
from torch import Tensor

from caption.core.errors import UserError
from caption.objectives import DoublyStochastic, MovingAverage, Reinforce

LN2 = math.log(2)
# Two captions of one image and one of another: log p of their words in units of −ln 2.
LOGITS, TARGETS = logits_of(
    [[[1 / 2, 1 / 4, 0.9], [1 / 8, 0.9, 0.9]], [[1 / 2, 1 / 2, 1 / 16], [0.9, 0.9, 0.9]]]
)
LENGTHS = torch.tensor([[2, 1], [3, 0]])
CAPTIONS = 3
MEANS = torch.tensor([[1.5, 3.0], [2.0, 0.0]]) * -LN2
REAL = torch.arange(3) < LENGTHS[..., None]
SAMPLED = torch.zeros(2, 2, 3, dtype=torch.long)
EVEN = uniform(LENGTHS, 3)


def objective(baseline: float = 0.0, **options: Any) -> Reinforce:
    made = Reinforce(MovingAverage(), **{"reward": "mean", "terms": [], **options})
    made.baseline.value.fill_(baseline)
    return made


def credit(objective: Reinforce) -> Tensor:
    """(B, K, T) the credit of each sampled location: minus the gradient on its log p, times N."""
    log_prob, logits = torch.full((2, 2, 3), -LN2, requires_grad=True), LOGITS.clone().requires_grad_()
    loss = loss_of(objective, unrolled(logits, LENGTHS, EVEN, SAMPLED, log_prob), TARGETS)
    loss.value.backward()
    assert not objective.baseline.value.requires_grad
    assert not any(value.requires_grad for value in loss.logged.values())
    return -log_prob.grad * CAPTIONS


@pytest.mark.parametrize("baseline", [0.0, -1.3])
def test_with_credit_future_a_location_gets_its_own_word_and_those_after(baseline: float):
    to_come = -LN2 * torch.tensor([[[3.0, 2, 0], [3, 0, 0]], [[6, 5, 4], [0, 0, 0]]])
    share = torch.tensor([[[1, 1 / 2, 0], [1, 0, 0]], [[1, 2 / 3, 1 / 3], [0, 0, 0]]])
    for reward, lengths in (("sum", 1), ("mean", LENGTHS.clamp_min(1)[..., None])):
        credits = credit(objective(baseline, reward=reward, credit="future"))
        torch.testing.assert_close(credits, to_come / lengths - share * baseline)


def test_the_authors_rule_on_the_scores():
    """(c − b)/10 · (s − α) + 0.002 · α (log α + H), c the mean NLL of the caption, b the mean NLL so far."""
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(2, 2, 3, 4, generator=generator).requires_grad_()
    location = torch.randint(0, 4, (2, 2, 3), generator=generator)
    location[0, 1] = -1  # a caption that read the expectation
    log_weights = scores.log_softmax(-1)
    drawn = log_weights.gather(-1, location.clamp_min(0)[..., None]).squeeze(-1)
    log_prob = torch.where(location >= 0, drawn, 0.0)
    mean_nll_so_far = 1.3
    objective = Reinforce(reward_weight=0.1, reward="mean")
    objective.baseline.value.fill_(-mean_nll_so_far)
    loss = loss_of(objective, unrolled(LOGITS, LENGTHS, log_weights.exp(), location, log_prob), TARGETS)
    loss.value.backward()
    assert loss.logged["NLL"].item() == pytest.approx((3 + 3 + 6) * LN2 / 6, rel=1e-5)
    assert loss.logged["sampled"].item() == pytest.approx(5 / 6)

    a = log_weights.detach().exp()
    s = torch.nn.functional.one_hot(location.clamp_min(0), 4)
    c = -MEANS[..., None, None]
    score_function = (c - mean_nll_so_far) / 10 * (s - a) * (location >= 0)[..., None]
    entropy_term = 0.002 * a * (a.log() - (a * a.log()).sum(-1, keepdim=True))
    # This package averages over captions.
    expected = (score_function + entropy_term) * REAL[..., None] / CAPTIONS
    torch.testing.assert_close(scores.grad, expected)


def test_the_baseline_is_used_before_it_is_updated():
    made = objective(baseline=-2.0).train()
    torch.testing.assert_close(credit(made), (MEANS[..., None] + 2.0) * REAL)
    mean_reward = (1.5 + 3 + 2) / 3 * -LN2  # over the captions with steps
    updated = 0.9 * -2.0 + 0.1 * mean_reward
    assert made.baseline.value.item() == pytest.approx(updated, rel=1e-5)
    made.eval()
    for _ in range(2):  # fixed outside training
        torch.testing.assert_close(credit(made), (MEANS[..., None] - updated) * REAL)


def test_an_absent_caption_and_padding_do_not_count():
    """The same three captions, each with its own image, so that none is absent."""
    weights, log_prob = torch.randn(2, 2, 3, 5).softmax(-1), torch.randn(2, 2, 3)
    sparse, tight = (Reinforce(credit="future", terms=[DoublyStochastic(0.5)]) for _ in range(2))
    loss = loss_of(sparse, unrolled(LOGITS, LENGTHS, weights, SAMPLED, log_prob), TARGETS)
    present = LENGTHS > 0
    one_each = [padded[present][:, None] for padded in (LOGITS, LENGTHS, weights, SAMPLED, log_prob, TARGETS)]
    same = loss_of(tight, unrolled(*one_each[:-1]), one_each[-1])
    torch.testing.assert_close(loss.value, same.value)
    torch.testing.assert_close(sparse.baseline.value, tight.baseline.value)
    for name, value in loss.logged.items():
        torch.testing.assert_close(value, same.logged[name])


def test_soft_attention_is_refused():
    with pytest.raises(UserError, match="CrossEntropy"):
        loss_of(Reinforce(), unrolled(LOGITS, LENGTHS, EVEN), TARGETS)
