"""The loss of soft attention. Its value is compared with that of caption.textbook in tests/core, its terms are in
test_terms.py."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.hand_unrolled import logits_of, loss_of, uniform, unrolled
from torch.nn import functional

from caption.decoders import Unrolled
from caption.objectives import CrossEntropy, DoublyStochastic

LN2 = math.log(2)
# One image, two captions: words of probability 1/2 and 1/4, and one word of probability 1/8.
LOGITS, TARGETS = logits_of([[[1 / 2, 1 / 4], [1 / 8, 0.3]]])
LENGTHS = torch.tensor([[2, 1]])
WEIGHTS = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[1.0, 0.0], [0.3, 0.7]]]])


def example() -> Unrolled:
    return unrolled(LOGITS, LENGTHS, WEIGHTS)


def test_a_caption_that_is_not_there_does_not_count():
    logits = torch.cat((LOGITS, torch.randn(1, 1, 2, 3)), 1)
    weights = torch.cat((WEIGHTS, uniform(torch.ones(1, 1), 2)), 1)
    more = unrolled(logits, torch.tensor([[2, 1, 0]]), weights)
    targets = torch.zeros(1, 3, 2, dtype=torch.long)
    targets[:, :2] = TARGETS
    targets[0, 1, 1] = 2  # behind the end
    objective = CrossEntropy([DoublyStochastic(2.0)], label_smoothing=0.2)
    values = [loss_of(objective, more, targets).value, loss_of(objective, example(), TARGETS).value]
    torch.testing.assert_close(*values)


@pytest.mark.parametrize(("per", "divisor"), [(("caption",), 2), (("word",), 3)])
def test_label_smoothing_is_that_of_torch(per: tuple[str, ...], divisor: int):
    packed = example()
    of_words = functional.cross_entropy(packed.logits, packed.pack(TARGETS), label_smoothing=0.3)
    loss = loss_of(CrossEntropy([], label_smoothing=0.3, per=per), packed, TARGETS)
    torch.testing.assert_close(loss.value, 3 * of_words / divisor)
    assert loss.logged.keys() == {"NLL"}
    assert loss.logged["NLL"].item() == pytest.approx(2 * LN2, rel=1e-5)  # of the words, not smoothed


def test_half_precision_logits_are_summed_in_single():
    half = unrolled(LOGITS.bfloat16(), LENGTHS, WEIGHTS.bfloat16())
    value = loss_of(CrossEntropy(), half, TARGETS).value
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss_of(CrossEntropy(), example(), TARGETS).value, rtol=0.02, atol=0)
