"""The loss of soft attention, eq. 14, worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.hand_unrolled import logits_of, loss_of, uniform, unrolled
from torch.nn import functional

from caption.decoders import Unrolled
from caption.objectives import CrossEntropy, word_log_likelihoods

LN2 = math.log(2)
# One image, two captions: words of probability 1/2 and 1/4, and one word of probability 1/8.
LOGITS, TARGETS = logits_of([[[1 / 2, 1 / 4], [1 / 8, 0.3]]])
LENGTHS = torch.tensor([[2, 1]])
WEIGHTS = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.3, 0.7]]]])
# Doubly stochastic: (1.5, 0.5) -> 0.5, (1, 0) -> 1, mean 0.75.


def example() -> Unrolled:
    return unrolled(LOGITS, LENGTHS, WEIGHTS)


def test_word_log_likelihoods():
    found = example().unpack(word_log_likelihoods(example(), TARGETS))
    torch.testing.assert_close(found, torch.tensor([[[-LN2, -2 * LN2], [-3 * LN2, 0.0]]]))


def test_by_hand():
    loss = loss_of(CrossEntropy(doubly_stochastic=2.0), example(), TARGETS)
    nll = (1 + 2 + 3) * LN2
    assert loss.value.item() == pytest.approx(nll / 2 + 2.0 * 0.75, rel=1e-5)
    assert loss.logged["NLL"].item() == pytest.approx(nll / 3, rel=1e-5)  # per word
    assert loss.logged["doubly_stochastic"].item() == pytest.approx(0.75)


def test_without_the_second_term():
    loss = loss_of(CrossEntropy(doubly_stochastic=0.0), example(), TARGETS)
    assert loss.value.item() == pytest.approx(3 * LN2, rel=1e-5)
    assert set(loss.logged) == {"NLL"}


def test_targets_behind_the_end_do_not_matter():
    other = TARGETS.clone()
    other[0, 1, 1] = 2
    objective = CrossEntropy()
    assert torch.equal(
        loss_of(objective, example(), TARGETS).value, loss_of(objective, example(), other).value
    )


def test_a_caption_that_is_not_there_does_not_count():
    logits = torch.cat((LOGITS, torch.randn(1, 1, 2, 3)), 1)
    weights = torch.cat((WEIGHTS, uniform(torch.ones(1, 1), 2)), 1)
    more = unrolled(logits, torch.tensor([[2, 1, 0]]), weights)
    targets = torch.zeros(1, 3, 2, dtype=torch.long)
    targets[:, :2] = TARGETS
    objective = CrossEntropy(doubly_stochastic=2.0, label_smoothing=0.2)
    torch.testing.assert_close(
        loss_of(objective, more, targets).value, loss_of(objective, example(), TARGETS).value
    )


def test_it_is_a_mean_over_captions():
    twice = unrolled(*(tensor.repeat(2, *[1] * (tensor.dim() - 1)) for tensor in (LOGITS, LENGTHS, WEIGHTS)))
    objective = CrossEntropy(doubly_stochastic=0.7, entropy=0.1, label_smoothing=0.1)
    torch.testing.assert_close(
        loss_of(objective, twice, TARGETS.repeat(2, 1, 1)).value, loss_of(objective, example(), TARGETS).value
    )


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
def test_label_smoothing_is_that_of_torch(smoothing: float):
    packed = example()
    expected = functional.cross_entropy(
        packed.logits, packed.pack(TARGETS), reduction="sum", label_smoothing=smoothing
    )
    loss = loss_of(CrossEntropy(doubly_stochastic=0.0, label_smoothing=smoothing), packed, TARGETS)
    torch.testing.assert_close(loss.value, expected / 2)
    assert loss.logged["NLL"].item() == pytest.approx(2 * LN2, rel=1e-5)  # of the words, not smoothed


def test_label_smoothing_of_a_mean_over_words_is_that_of_torch():
    packed = example()
    expected = functional.cross_entropy(packed.logits, packed.pack(TARGETS), label_smoothing=0.3)
    loss = loss_of(CrossEntropy(doubly_stochastic=0.0, label_smoothing=0.3, words="mean"), packed, TARGETS)
    torch.testing.assert_close(loss.value, expected)


def test_the_cost_of_entropy():
    loss = loss_of(CrossEntropy(doubly_stochastic=0.0, entropy=0.5), example(), TARGETS)
    # Only the second of the three steps is uncertain, with ln 2 nats.
    assert loss.value.item() == pytest.approx(3 * LN2 + 0.5 * LN2 / 2, rel=1e-5)


def test_the_cost_of_entropy_may_begin_later():
    made = CrossEntropy(doubly_stochastic=0.0, entropy=0.5, entropy_after=2)
    for _ in range(3):
        assert loss_of(made.eval(), example(), TARGETS).value.item() == pytest.approx(
            3 * LN2, rel=1e-5
        )  # padding, ignored
    costs = [loss_of(made.train(), example(), TARGETS).value.item() - 3 * LN2 for _ in range(4)]
    assert costs == pytest.approx([0, 0, 0.25 * LN2, 0.25 * LN2], abs=1e-5)
    resumed = CrossEntropy(doubly_stochastic=0.0, entropy=0.5, entropy_after=2)
    resumed.load_state_dict(made.state_dict())
    assert loss_of(resumed, example(), TARGETS).value.item() == pytest.approx(3.25 * LN2, rel=1e-5)


def test_the_gradients_are_those_of_the_equation():
    logits, weights = LOGITS.clone().requires_grad_(), WEIGHTS.clone().requires_grad_()
    loss_of(CrossEntropy(doubly_stochastic=2.0), unrolled(logits, LENGTHS, weights), TARGETS).value.backward()
    real = torch.tensor([[[1.0, 1.0], [1.0, 0.0]]])[..., None]
    on_logits = (LOGITS.softmax(-1) - functional.one_hot(TARGETS, 3)) * real / 2
    torch.testing.assert_close(logits.grad, on_logits)
    on_weights = 2.0 * 2 * ((WEIGHTS * real).sum(2, keepdim=True) - 1) * real / 2
    torch.testing.assert_close(weights.grad, on_weights)


def test_logged_values_have_no_graph():
    logits, weights = LOGITS.clone().requires_grad_(), WEIGHTS.clone().requires_grad_()
    loss = loss_of(CrossEntropy(entropy=0.1), unrolled(logits, LENGTHS, weights), TARGETS)
    assert set(loss.logged) == {"NLL", "doubly_stochastic"}
    assert not any(value.requires_grad for value in loss.logged.values())


def test_half_precision_logits_are_summed_in_single():
    half = unrolled(LOGITS.bfloat16(), LENGTHS, WEIGHTS.bfloat16())
    loss = loss_of(CrossEntropy(), half, TARGETS)
    assert loss.value.dtype == torch.float32
    torch.testing.assert_close(
        loss.value, loss_of(CrossEntropy(), example(), TARGETS).value, rtol=0.02, atol=0
    )


def test_other_reductions():
    """Log-likelihoods averaged over words; the second term averaged over regions, or summed over captions."""
    nll = 6 * LN2
    found = {
        name: loss_of(CrossEntropy(doubly_stochastic=2.0, **{name: choice}), example(), TARGETS).value.item()
        for name, choice in (("words", "mean"), ("regions", "mean"), ("captions", "sum"))
    }
    assert found["words"] == pytest.approx(nll / 3 + 2.0 * 0.75, rel=1e-5)
    assert found["regions"] == pytest.approx(nll / 2 + 2.0 * 0.75 / 2, rel=1e-5)
    assert found["captions"] == pytest.approx(nll / 2 + 2.0 * 1.5, rel=1e-5)
    summed = loss_of(CrossEntropy(0.0, entropy=0.5, captions="sum"), example(), TARGETS).value.item()
    assert summed == pytest.approx(nll / 2 + 0.5 * LN2, rel=1e-5)
    with pytest.raises(ValueError, match="regions must be one of 'sum', 'mean', not 'max'"):
        CrossEntropy(regions="max")


def test_the_penalty_that_the_attention_declares():
    heads = torch.arange(16.0).view(1, 2, 2, 4).requires_grad_()
    with_heads = unrolled(LOGITS, LENGTHS, WEIGHTS, maps={"heads": heads})
    mean_square = (sum(x * x for x in range(12))) / 12  # of the three real steps
    without = loss_of(CrossEntropy(doubly_stochastic=0.0), with_heads, TARGETS)
    loss = loss_of(CrossEntropy(doubly_stochastic=0.0, attention_penalty=0.5), with_heads, TARGETS)
    assert set(without.logged) == {"NLL"}
    assert loss.logged["attention_penalty"].item() == pytest.approx(mean_square)
    assert (loss.value - without.value).item() == pytest.approx(0.5 * mean_square, rel=1e-5)
    loss.value.backward()
    assert not loss.logged["attention_penalty"].requires_grad
    torch.testing.assert_close(heads.grad[0, 0], heads.detach()[0, 0] / 12)  # 0.5 · 2 x / 12
    undeclared = loss_of(CrossEntropy(doubly_stochastic=0.0, attention_penalty=0.5), example(), TARGETS)
    assert set(undeclared.logged) == {"NLL"}
