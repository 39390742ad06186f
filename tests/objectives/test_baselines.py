"""Baselines, worked out by hand: their values, their training, and their independence of the sample."""

from __future__ import annotations

import pytest
import torch
from helpers.exact_paths import fixed_paths
from helpers.tiny_views import WithoutEncoder
from helpers.toy import gradient, problem, toy
from torch import Tensor

from caption.decoders import Trace, Unrolled
from caption.objectives import (
    Baseline,
    CaptionBatch,
    Critic,
    GreedyAttentionBaseline,
    LeaveOneOut,
    MovingAverage,
    NoBaseline,
    Reinforce,
    Rewards,
)

# One image, one caption of two words, three samples; credit for the future.
WORDS = torch.tensor([[[[-1.0, -2.0], [-3.0, -4.0], [-5.0, -9.0]]]])
CREDITED = torch.tensor([[[[-3.0, -2.0], [-7.0, -4.0], [-14.0, -9.0]]]])


def rewards(queries: Tensor = torch.zeros(6, 2)) -> Rewards:  # noqa: B008
    """Of which nobody asks for the greedy path."""
    unrolled = Unrolled(torch.zeros(6, 1), Trace(torch.ones(6, 1), {}), queries, torch.arange(6), (1, 3, 2))
    share = torch.tensor([1.0, 0.5]).expand(1, 1, 3, 2)
    return Rewards(CREDITED, CREDITED[..., 0], share, unrolled, lambda: pytest.fail("not asked for"))


def watch(baseline: Baseline) -> list[tuple[Rewards, Tensor]]:
    """The rewards and values of each call that is to come."""
    calls: list[tuple[Rewards, Tensor]] = []
    baseline.register_forward_hook(lambda module, inputs, values: calls.append((inputs[0], values)))
    return calls


def test_a_batch_without_captions_leaves_the_moving_average_as_it_was():
    baseline = MovingAverage()
    baseline.value.fill_(-4.0)
    absent = rewards()
    nothing = absent.unrolled._replace(positions=torch.arange(0), queries=torch.zeros(0, 2))
    baseline.learn(absent._replace(unrolled=nothing))
    assert baseline.value.item() == -4.0


def test_a_sample_is_compared_with_the_others_of_its_caption_at_the_same_step():
    """Two captions with very different rewards: the advantages of each sum to 0."""
    expected = torch.tensor([[[[-10.5, -6.5], [-8.5, -5.5], [-5.0, -3.0]]]])
    torch.testing.assert_close(LeaveOneOut()(rewards()), expected)
    decoder, calls = toy(), watch(baseline := LeaveOneOut())
    torch.manual_seed(2)
    Reinforce(baseline, samples=4, reward="sum")(WithoutEncoder(decoder), *problem([[2, 1]]))
    advantages = calls[0][0].credited - calls[0][1]
    assert advantages.shape == (1, 2, 4, 2)
    torch.testing.assert_close(advantages.sum(2), torch.zeros(1, 2, 2, dtype=torch.float64))
    assert (advantages.abs().amax(2)[0, :, 0] > 1e-3).all()


def test_the_critic_reads_the_query_of_its_step_and_learns_the_credit():
    torch.manual_seed(0)
    baseline, queries = Critic(8), torch.randn(6, 2)
    baseline.build(2)
    batch = rewards(queries)
    values = baseline(batch).flatten()
    first, last = baseline.network[0], baseline.network[2]
    for place in range(6):
        hidden = (first.weight @ queries[place] + first.bias).tanh()
        assert values[place].item() == pytest.approx((last.weight @ hidden + last.bias).item(), rel=1e-5)
    assert not values.requires_grad
    loss = baseline.learn(batch)
    torch.testing.assert_close(loss, (values - CREDITED.flatten()).square().sum())
    assert loss.requires_grad


def test_the_critic_learns_in_training_only_and_does_not_train_the_decoder():
    decoder = toy()
    objective = Reinforce(baseline := Critic(3), reward_weight=0.0, terms=[])
    objective.build(4, (2,), 5)
    baseline.double()
    batch = WithoutEncoder(decoder), *problem([[2]])
    with fixed_paths(decoder, torch.tensor([[4]])):
        alone = objective.eval()(*batch)
        loss = objective.train()(*batch)
    assert "baseline_loss" not in alone.logged
    torch.testing.assert_close(loss.value, alone.value + loss.logged["baseline_loss"])
    assert not any(value.requires_grad for value in loss.logged.values())
    torch.testing.assert_close(gradient(loss.value, decoder), gradient(alone.value, decoder))
    loss.value.backward()
    assert baseline.network[0].weight.grad.any()


@pytest.mark.parametrize("credit", ["caption", "future"])
def test_greedy_attention_is_the_most_probable_path(credit: str):
    decoder = toy()
    captioner, (views, captions) = WithoutEncoder(decoder), problem([[2], [1]])
    calls = watch(baseline := GreedyAttentionBaseline())
    objective = Reinforce(baseline, samples=2, reward="sum", credit=credit)
    objective(captioner, views, captions)
    decoder.dropout.p = decoder.readout.dropout.p = 0.5  # not applied in the greedy pass
    objective(captioner, views, captions)
    torch.testing.assert_close(calls[1][1], calls[0][1])
    assert decoder.training
    assert decoder.dropout.training
    assert decoder.attention.alignment.at_test == "expectation"
    log_likelihoods = greedy_walk(captions)
    to_come = log_likelihoods.flip(-1).cumsum(-1).flip(-1)
    real = torch.tensor([[[True, True]], [[True, False]]])
    expected = to_come if credit == "future" else to_come[..., :1] * real
    values = calls[0][1].expand_as(calls[0][0].credited)
    assert ((calls[0][0].credited != 0) == real[:, :, None]).all()
    for sample in range(2):
        torch.testing.assert_close(values[:, :, sample], expected)
    assert not values.requires_grad


def greedy_walk(captions: CaptionBatch) -> Tensor:
    """(B, 1, T) log-likelihoods when each step reads its most probable region, word by word."""
    decoder = toy().eval()
    views, _ = problem(captions.lengths.tolist())
    decoder.attention.alignment.at_test = "argmax"
    state = decoder.start(decoder.project(views))
    log_likelihoods = torch.zeros(captions.words.shape, dtype=torch.float64)
    for t in range(captions.words.shape[2]):
        scores, state = decoder.step(state, captions.words[:, :, t])
        log_likelihoods[..., t] = scores.gather(-1, captions.targets[:, :, t, None]).squeeze(-1)
    return log_likelihoods * captions.real()


def test_the_score_function_may_be_a_sum_over_captions():
    """As in the authors' code: its weight grows with the batch; the samples of a caption are averaged."""
    decoder = toy()
    batch = WithoutEncoder(decoder), *problem([[2], [1]])
    with fixed_paths(decoder, torch.tensor([[0, 4], [1, 2]])):
        bare, mean, total = (
            Reinforce(NoBaseline(), 2, weight, per=per, terms=[])(*batch).value
            for weight, per in ((0.0, ()), (0.7, ("caption",)), (0.7, ()))
        )
    torch.testing.assert_close(total - bare, 2 * (mean - bare))
