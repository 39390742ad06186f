"""Hard attention and Gumbel-softmax sample from their weights; hard attention reports the log-density."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from helpers.given_scores import GivenScores, attend
from helpers.tiny_views import one_row
from torch import Tensor

from caption.attention import (
    AttentionOutput,
    GridMemory,
    GumbelSoftmax,
    Multinoulli,
    Query,
    QuerySizes,
    ScoredAttention,
    Softmax,
    override_at_test,
)
from caption.attention.stochastic import override_draws, stochastic_parts
from caption.errors import UserError

PROBABILITIES = torch.tensor([0.5, 0.3, 0.15, 0.05])
REGIONS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [-1.0, 2.0]])

either = pytest.mark.parametrize("alignment", [Multinoulli, GumbelSoftmax])


@pytest.fixture(autouse=True)
def _same_draws_every_time():
    torch.manual_seed(7)


def hard(
    alignment: type[Multinoulli] = Multinoulli, training: bool = True, **options: Any
) -> ScoredAttention:
    attention = ScoredAttention(GivenScores(), alignment(**options))
    attention.build((2,), QuerySizes(4))
    return attention.train(training)


def memory_of(attention: ScoredAttention, images: int = 1, mask: Tensor | None = None) -> GridMemory:
    return attention.project(one_row(REGIONS.expand(images, -1, -1), mask))


def first(attention: ScoredAttention, scores: Tensor, mask: Tensor | None = None) -> AttentionOutput:
    return attend(attention, scores, REGIONS.expand(len(scores), -1, -1), mask)


def coins(attention: ScoredAttention, memory: GridMemory, captions: int) -> Tensor:
    """(B, K) bool: which captions sample."""
    return attention.start(memory, captions).alignment


def many(captions: int = 20_000) -> Tensor:
    """Scores (1, K, L) whose softmax is `PROBABILITIES`."""
    return PROBABILITIES.log().expand(1, captions, -1)


# -- sampling ----------------------------------------------------------------------------------------------


@either
@pytest.mark.parametrize("training", [True, False])
def test_regions_are_drawn_as_often_as_the_weights_say(alignment: type[Multinoulli], training: bool):
    options = {"expectation": 0} if training else {"expectation": 1, "at_test": "sample"}
    drawn = first(hard(alignment, training, **options), many()).location
    frequencies = drawn.flatten().bincount(minlength=4) / 20_000
    deviation = (PROBABILITIES * (1 - PROBABILITIES) / 20_000).sqrt()
    assert ((frequencies - PROBABILITIES).abs() < 4 * deviation).all()


@either
def test_the_context_is_the_region_that_was_drawn(alignment: type[Multinoulli]):
    output = first(hard(alignment, expectation=0), many(50))
    torch.testing.assert_close(output.context[0], REGIONS[output.location[0]])
    torch.testing.assert_close(output.weights, many(50).exp())  # α, not s
    if alignment is Multinoulli:
        torch.testing.assert_close(output.log_prob[0], PROBABILITIES.log()[output.location[0]])
    else:
        assert output.log_prob is None  # there is no score-function term


@either
def test_a_masked_region_is_never_drawn(alignment: type[Multinoulli]):
    mask = torch.tensor([[False, True, True, False]])
    scores = many(2000).clone().requires_grad_()
    output = first(hard(alignment, expectation=0), scores, mask)
    assert set(output.location.flatten().tolist()) == {1, 2}
    torch.testing.assert_close(output.weights[0, 0], torch.tensor([0, 2 / 3, 1 / 3, 0]))
    output.context.sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[..., [0, 3]] == 0).all()


# -- the draw between samples and expectation --------------------------------------------------------------


@pytest.mark.parametrize("share", ["batch", "caption"])
@pytest.mark.parametrize("expectation", [0.0, 0.2, 0.5, 1.0])
def test_the_expectation_has_its_probability(share: str, expectation: float):
    attention = hard(expectation=expectation, share=share)
    memory = memory_of(attention)
    tosses = 2000
    if share == "batch":
        states = torch.stack([coins(attention, memory, 3).flatten() for _ in range(tosses)])
        assert (states == states[:, :1]).all()  # one draw for all
        sampling = states[:, 0]
    else:
        sampling = coins(attention, memory, tosses)
    share_of_expectation = 1 - sampling.float().mean().item()
    margin = 4 * math.sqrt(expectation * (1 - expectation) / tosses)
    assert share_of_expectation == pytest.approx(expectation, abs=margin)


def test_a_coin_for_each_caption_falls_differently():
    state = coins(hard(share="caption"), memory_of(hard(), images=20), 20)
    assert state.shape == (20, 20)
    assert 0 < state.float().mean() < 1
    assert 0 < state[0].float().mean() < 1
    assert 0 < state[:, 0].float().mean() < 1


def test_a_caption_keeps_its_coin():
    attention = hard(share="caption")
    memory = memory_of(attention)
    state = attention.start(memory, 40)
    for _ in range(3):
        output = attention(Query(many(40)), memory, state)
        assert torch.equal(output.location >= 0, state.alignment)
        assert torch.equal(output.log_prob != 0, state.alignment)
        assert torch.equal(output.state.alignment, state.alignment)
        read = torch.where(state.alignment[..., None], REGIONS[output.location], PROBABILITIES @ REGIONS)
        torch.testing.assert_close(output.context, read)


# -- outside training --------------------------------------------------------------------------------------


@either
def test_at_test_expectation(alignment: type[Multinoulli]):
    output = first(hard(alignment, training=False, expectation=0), many(3))
    torch.testing.assert_close(output.context, (PROBABILITIES @ REGIONS).expand(1, 3, -1))
    assert (output.location == -1).all()
    assert output.log_prob is None if alignment is GumbelSoftmax else (output.log_prob == 0).all()


@either
def test_at_test_argmax(alignment: type[Multinoulli]):
    scores = torch.tensor([[[0.0, 2.0, 1.0, -1.0], [0.0, 2.0, 1.0, 3.0]]])
    before = torch.get_rng_state()
    output = first(hard(alignment, training=False, expectation=1, at_test="argmax"), scores)
    assert output.location.tolist() == [[1, 3]]
    torch.testing.assert_close(output.context[0], REGIONS[[1, 3]])
    if alignment is Multinoulli:
        torch.testing.assert_close(output.log_prob, scores.log_softmax(-1).amax(-1))
    assert torch.equal(torch.get_rng_state(), before)


def test_another_choice_for_a_while_even_after_an_error():
    attention = hard(training=False)
    with override_at_test(attention, "argmax"):
        assert first(attention, many(3)).location.tolist() == [[0, 0, 0]]
    with pytest.raises(RuntimeError), override_at_test(attention, "argmax"):
        raise RuntimeError
    assert (first(attention, many(3)).location == -1).all()


def test_an_unknown_choice_is_refused():
    with pytest.raises(ValueError, match="'expectation', 'argmax', 'sample', not 'guess'"):
        override_at_test(hard(), "guess").__enter__()


# -- gradients ---------------------------------------------------------------------------------------------


def test_the_gradient_of_log_prob_is_one_hot_minus_weights():
    scores = torch.randn(1, 6, 4, requires_grad=True)
    output = first(hard(expectation=0), scores)
    output.log_prob.sum().backward()
    one_hot = torch.nn.functional.one_hot(output.location, 4)
    torch.testing.assert_close(scores.grad, one_hot - output.weights.detach())


def test_a_sample_lets_no_gradient_through_the_context():
    scores = torch.randn(1, 6, 4, requires_grad=True)
    first(hard(expectation=0), scores).context.sum().backward()
    assert scores.grad is None or (scores.grad == 0).all()


def test_the_expectation_has_the_gradient_of_soft_attention_and_no_score_function():
    scores = torch.randn(1, 6, 4, requires_grad=True)
    output = first(hard(expectation=1), scores)
    (context_gradient,) = torch.autograd.grad(output.context.square().sum(), scores, retain_graph=True)
    soft = (scores.softmax(-1) @ REGIONS).square().sum()
    torch.testing.assert_close(context_gradient, *torch.autograd.grad(soft, scores))
    (nothing,) = torch.autograd.grad(output.log_prob.sum(), scores)
    assert (nothing == 0).all()
    assert (output.location == -1).all()
    assert (output.log_prob == 0).all()


@pytest.mark.parametrize("expectation", [0.0, 1.0])
def test_masks_and_underflow_leave_no_nan(expectation: float):
    scores = torch.tensor([[[0.0, -1e4, 1e4, 3.0]]]).repeat(1, 5, 1).requires_grad_()
    mask = torch.tensor([[True, True, True, False]])
    output = first(hard(expectation=expectation), scores, mask)
    (output.log_prob.sum() + output.context.sum() + (output.weights * output.weights).sum()).backward()
    assert output.log_prob.isfinite().all()
    assert scores.grad.isfinite().all()


def test_a_region_of_vanishing_weight_has_a_finite_log_prob():
    # exp(−200) is 0 in single precision, its logarithm would be −inf.
    attention = hard(expectation=0)
    scores = torch.tensor([[[0.0, -200.0, -1.0, -1.0]]], requires_grad=True)
    with override_draws(attention, lambda log_weights: torch.tensor([[1]])):
        output = first(attention, scores)
    assert output.weights[0, 0, 1] == 0
    assert output.log_prob.item() == pytest.approx(-200 - math.log(1 + 2 / math.e), abs=1e-3)
    output.log_prob.sum().backward()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_the_gradient_of_gumbel_softmax_is_that_of_the_relaxed_sample(temperature: float):
    scores = torch.tensor([[[0.3, -0.2, 0.9, 0.0]]]).requires_grad_()
    first(hard(GumbelSoftmax, temperature=temperature), scores).context.sum().backward()
    torch.manual_seed(7)
    torch.rand((1, 1))  # the draw between samples and expectation
    noise = -torch.empty(1, 1, 4).exponential_().log()
    again = scores.detach().clone().requires_grad_()
    relaxed = ((again.log_softmax(-1) + noise) / temperature).softmax(-1)
    (relaxed @ REGIONS).sum().backward()
    torch.testing.assert_close(scores.grad, again.grad)
    assert scores.grad.abs().max() > 1e-3


def test_the_temperature_is_above_zero():
    with pytest.raises(UserError, match=r"temperature 0.0 of GumbelSoftmax must be above 0"):
        GumbelSoftmax(temperature=0.0)


# -- fixed samples -----------------------------------------------------------------------------------------


def where(region: int) -> Callable[[Tensor], Tensor]:
    """Draws this region for every caption."""
    return lambda log_weights: torch.full(log_weights.shape[:-1], region)


@pytest.mark.parametrize("expectation", [0.0, 0.5, 1.0])
def test_override_draws_applies_to_every_caption_in_training(expectation: float):
    attention, received = hard(expectation=expectation, share="caption"), []

    def draw(log_weights: Tensor) -> Tensor:
        received.append(log_weights)
        return where(3)(log_weights)

    with override_draws(attention, draw):
        output = first(attention, many(40))
    torch.testing.assert_close(received[0], many(40))
    assert (output.location == 3).all()
    torch.testing.assert_close(output.context, REGIONS[3].expand(1, 40, -1))
    torch.testing.assert_close(output.log_prob, PROBABILITIES[3].log().expand(1, 40))


def test_override_draws_does_not_change_evaluation():
    attention = hard(training=False)
    with override_draws(attention, where(3)):
        assert (first(attention, many(3)).location == -1).all()
        with override_at_test(attention, "argmax"):
            assert (first(attention, many(3)).location == 0).all()
        with override_at_test(attention, "sample"):
            assert (first(attention, many(3)).location == 3).all()


def test_chance_comes_back_even_after_an_error():
    attention = hard(expectation=0)
    assert not attention.alignment.draws_overridden
    with override_draws(attention, where(3)):
        assert attention.alignment.draws_overridden
    with pytest.raises(RuntimeError), override_draws(attention, where(3)):
        raise RuntimeError
    assert not attention.alignment.draws_overridden
    assert len(set(first(attention, many(500)).location.flatten().tolist())) > 1


def test_a_model_that_does_not_sample_cannot_be_given_samples():
    soft = ScoredAttention(GivenScores(), Softmax())
    assert stochastic_parts(soft) == []
    with (
        pytest.raises(UserError, match="ScoredAttention has no attention that samples"),
        override_draws(soft, where(0)),
    ):
        pass
