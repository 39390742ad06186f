"""Hard attention and Gumbel-softmax sample from their weights; hard attention reports the log-density."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from helpers.given_scores import GivenScores, attend
from helpers.tiny_views import one_row
from torch import Tensor

from caption import attention as library
from caption.attention import GumbelSoftmax, Multinoulli, ScoredAttention, override_at_test
from caption.attention.stochastic import override_draws
from caption.core.errors import UserError

PROBABILITIES = torch.tensor([0.5, 0.3, 0.15, 0.05])
REGIONS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0], [-1.0, 2.0]])
EXPECTED = PROBABILITIES @ REGIONS

either = pytest.mark.parametrize("alignment", [Multinoulli, GumbelSoftmax])


@pytest.fixture(autouse=True)
def _same_draws_every_time():
    torch.manual_seed(7)


def hard(
    alignment: type[Multinoulli] = Multinoulli, training: bool = True, **options: Any
) -> ScoredAttention:
    attention = ScoredAttention(GivenScores(), alignment(**options))
    attention.build((2,), library.QuerySizes(4))
    return attention.train(training)


def first(attention: ScoredAttention, scores: Tensor, mask: Tensor | None = None) -> library.AttentionOutput:
    return attend(attention, scores, REGIONS.expand(len(scores), -1, -1), mask)


def coins(attention: ScoredAttention, images: int, captions: int) -> Tensor:
    """(B, K) bool: which captions sample."""
    memory = attention.project(one_row(REGIONS.expand(images, -1, -1)))
    return attention.start(memory, captions).alignment


def many(captions: int = 20_000) -> Tensor:
    """Scores (1, K, L) whose softmax is `PROBABILITIES`."""
    return PROBABILITIES.log().expand(1, captions, -1)


@either
@pytest.mark.parametrize("training", [True, False])
def test_regions_are_drawn_as_often_as_the_weights_say(alignment: type[Multinoulli], training: bool):
    """The context is the region that was drawn."""
    options = {"expectation": 0} if training else {"expectation": 1, "at_test": "sample"}
    output = first(hard(alignment, training, **options), many())
    frequencies = output.location.flatten().bincount(minlength=4) / 20_000
    deviation = (PROBABILITIES * (1 - PROBABILITIES) / 20_000).sqrt()
    assert ((frequencies - PROBABILITIES).abs() < 4 * deviation).all()
    torch.testing.assert_close(output.context[0], REGIONS[output.location[0]])
    torch.testing.assert_close(output.weights, many().exp())  # α, not s
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


@pytest.mark.parametrize("share", ["batch", "caption"])
@pytest.mark.parametrize("expectation", [0.0, 0.2, 1.0])
def test_the_expectation_has_its_probability(share: str, expectation: float):
    attention, tosses = hard(expectation=expectation, share=share), 1000
    if share == "batch":
        states = torch.stack([coins(attention, 1, 3).flatten() for _ in range(tosses)])
        assert (states == states[:, :1]).all()  # one draw for all
        sampling = states[:, 0]
    else:  # each caption of each image has its own
        sampling = coins(attention, 20, tosses // 20)
        mixed = 0 < expectation < 1
        assert all(bool(row.any() and not row.all()) == mixed for row in (*sampling, *sampling.T))
    share_of_expectation = 1 - sampling.float().mean().item()
    margin = 4 * math.sqrt(expectation * (1 - expectation) / tosses)
    assert share_of_expectation == pytest.approx(expectation, abs=margin)


def test_a_caption_keeps_its_coin():
    attention = hard(share="caption")
    memory = attention.project(one_row(REGIONS[None]))
    state = attention.start(memory, 40)
    for _ in range(3):
        output = attention(library.Query(many(40)), memory, state)
        assert torch.equal(output.location >= 0, state.alignment)
        assert torch.equal(output.log_prob != 0, state.alignment)
        assert torch.equal(output.state.alignment, state.alignment)
        read = torch.where(state.alignment[..., None], REGIONS[output.location], EXPECTED)
        torch.testing.assert_close(output.context, read)


@either
def test_outside_training_it_reads_as_told_and_draws_nothing(alignment: type[Multinoulli]):
    scores = torch.tensor([[[0.0, 2.0, 1.0, -1.0], [0.0, 2.0, 1.0, 3.0]]])
    attention, before = hard(alignment, training=False, expectation=0), torch.get_rng_state()
    with override_at_test(attention, "argmax"):
        output = first(attention, scores)
    assert output.location.tolist() == [[1, 3]]
    torch.testing.assert_close(output.context[0], REGIONS[[1, 3]])
    if alignment is Multinoulli:
        torch.testing.assert_close(output.log_prob, scores.log_softmax(-1).amax(-1))
    with pytest.raises(RuntimeError), override_at_test(attention, "argmax"):
        raise RuntimeError
    output = first(attention, many(3))  # by default the expectation
    torch.testing.assert_close(output.context, EXPECTED.expand(1, 3, -1))
    assert (output.location == -1).all()
    assert output.log_prob is None if alignment is GumbelSoftmax else (output.log_prob == 0).all()
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(UserError, match="'guess'"):
        override_at_test(attention, "guess").__enter__()


@pytest.mark.parametrize("expectation", [0.0, 1.0])
def test_masks_and_underflow_leave_no_nan(expectation: float):
    scores = torch.tensor([[[0.0, -1e4, 1e4, 3.0]]]).repeat(1, 5, 1).requires_grad_()
    mask = torch.tensor([[True, True, True, False]])
    output = first(hard(expectation=expectation), scores, mask)
    (output.log_prob.sum() + output.context.sum() + (output.weights * output.weights).sum()).backward()
    assert output.log_prob.isfinite().all()
    assert scores.grad.isfinite().all()


def test_maps_that_were_edited_to_nothing_leave_finite_gradients():
    alignment = Multinoulli(expectation=0.0).train()
    weights = torch.tensor([[[0.0, 0.0], [0.3, 0.7]]], requires_grad=True)
    read, location, log_prob = alignment.select(weights, torch.ones(1, 2, dtype=torch.bool))
    assert location.tolist()[0][0] == -1
    (read.sum() + log_prob.sum()).backward()
    assert weights.grad.isfinite().all()


def test_a_region_of_vanishing_weight_has_a_finite_log_prob():
    # exp(−80) is close to the smallest normal number of single precision.
    attention = hard(expectation=0)
    scores = torch.tensor([[[0.0, -80.0, -1.0, -1.0]]], requires_grad=True)
    with override_draws(attention, lambda weights: torch.tensor([[1]])):
        output = first(attention, scores)
    assert output.weights[0, 0, 1] < 1e-34
    assert output.log_prob.item() == pytest.approx(-80 - math.log(1 + 2 / math.e), abs=1e-3)
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


def always_region_three(weights: Tensor) -> Tensor:
    return torch.full(weights.shape[:-1], 3)


@pytest.mark.parametrize("expectation", [0.0, 0.5, 1.0])
def test_override_draws_applies_to_every_caption_in_training(expectation: float):
    attention, received = hard(expectation=expectation, share="caption"), []

    def draw(weights: Tensor) -> Tensor:
        received.append(weights)
        return always_region_three(weights)

    with override_draws(attention, draw):
        output = first(attention, many(40))
    torch.testing.assert_close(received[0], many(40).softmax(-1))
    assert (output.location == 3).all()
    torch.testing.assert_close(output.context, REGIONS[3].expand(1, 40, -1))
    torch.testing.assert_close(output.log_prob, PROBABILITIES[3].log().expand(1, 40))


def test_override_draws_does_not_change_evaluation_and_chance_comes_back_even_after_an_error():
    attention = hard(training=False, expectation=0)
    with override_draws(attention, always_region_three):
        assert attention.alignment.draws_overridden
        for how, location in (("expectation", -1), ("argmax", 0), ("sample", 3)):
            with override_at_test(attention, how):
                assert (first(attention, many(3)).location == location).all()
    with pytest.raises(RuntimeError), override_draws(attention, always_region_three):
        raise RuntimeError
    assert not attention.alignment.draws_overridden
    assert len(set(first(attention.train(), many(500)).location.flatten().tolist())) > 1
    soft = ScoredAttention(GivenScores(), library.Softmax())
    said = pytest.raises(UserError, match="ScoredAttention")
    with said, override_draws(soft, always_region_three):
        pass
