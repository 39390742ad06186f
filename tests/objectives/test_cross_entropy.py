"""The loss of soft attention: its terms and their divisors, worked out by hand, label smoothing, and precision. Without
them its value is compared with that of caption.textbook, in tests/core."""

from __future__ import annotations

import math

import pytest
import torch
from helpers.hand_unrolled import HandDecoder, logits_of, loss_of, uniform, unrolled
from helpers.tiny_decoder import REGION_SIZE, WORDS, decoder, images, sentences
from helpers.tiny_views import WithoutEncoder, one_row
from torch import Tensor
from torch.nn import functional

from caption.attention import AdditiveScore, ScoredAttention, Softmax
from caption.core.errors import UserError
from caption.core.regions import WeightProperties
from caption.decoders import Decoder, TransformerDecoder, Unrolled
from caption.decoders.ensemble import EnsembleDecoder
from caption.kernels import accelerate
from caption.objectives import (
    AttentionPenalty,
    CaptionBatch,
    CrossEntropy,
    DoublyStochastic,
    Entropy,
    Term,
)
from caption.objectives.base import count_elements

WEIGHTS = torch.tensor([[[[1.0, 0.0], [0.5, 0.5]], [[0.25, 0.75], [1.0, 0.0]]]])
"""Of one image's two captions: α over two regions at two steps."""
LOGITS, TARGETS = logits_of([[[1 / 2, 1 / 4], [1 / 8, 0.3]]])
"""The first caption has words of probability 1/2 and 1/4, the second has one word of probability 1/8."""
LENGTHS = torch.tensor([[2, 1]])
USUAL = WeightProperties()
UNNORMALISED = WeightProperties(sums_to_one=False)
SIGNED = WeightProperties(sums_to_one=False, signed=True)


def value(
    term: Term, lengths: list[list[int]], weights: Tensor = WEIGHTS, properties: WeightProperties = USUAL
) -> Tensor:
    """The sum of a term over the steps of these captions."""
    steps = unrolled(torch.zeros(*weights.shape[:3], 2), torch.tensor(lengths), weights)
    return term(steps, WithoutEncoder(HandDecoder(steps, properties)))


@pytest.mark.parametrize(
    ("per", "divisor"),
    [
        ((), 1),
        (("image",), 2),
        (("caption",), 3),
        (("word",), 6),
        (("region",), 5),
        (("caption", "region"), 15),
    ],
    ids=str,
)
@pytest.mark.parametrize("samples", [1, 2])
def test_a_sum_is_divided_by_the_elements_of_the_batch(per: tuple[str, ...], divisor: int, samples: int):
    """Three captions of 1, 2 and 3 words, an absent one, and an image without captions; the samples of a caption are
    averaged."""
    words = torch.zeros(3, 2, 3, dtype=torch.long)
    captions = CaptionBatch(words, words, torch.tensor([[1, 2], [0, 3], [0, 0]]))
    lengths = captions.repeated(samples).lengths
    batch = unrolled(torch.zeros(*lengths.shape, 3, 2), lengths, torch.ones(*lengths.shape, 3, 5))
    mean = count_elements(captions, batch, samples).mean(torch.tensor(30.0), per)
    assert mean.item() == pytest.approx(30 / divisor / samples)


def test_each_term_has_a_weight_and_a_divisor_of_its_own():
    batch = unrolled(torch.zeros(1, 2, 2, 2), torch.tensor([[2, 1]]), WEIGHTS)
    targets = torch.zeros(1, 2, 2, dtype=torch.long)
    terms = [DoublyStochastic(0.5, per=("region",)), Entropy(-3.0, per=("word",)), Entropy(7.0)]
    loss = loss_of(CrossEntropy(terms), batch, targets)
    # Of the three real steps the second is even and the third has shares of 1/4 and 3/4; log p is −ln 2 at each.
    squares = (0.5**2 + 0.5**2) + (0.75**2 + 0.25**2)
    entropies = math.log(2) - 0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    expected = 3 * math.log(2) / 2 + 0.5 * squares / 2 - 3 * entropies / 3 + 7 * entropies / 2
    assert loss.value.item() == pytest.approx(expected, rel=1e-5)
    assert loss.logged["doubly_stochastic"].item() == pytest.approx(squares / 2)  # without the weight


def test_doubly_stochastic_by_hand():
    # Σ_t α = (1.5, 0.5) -> 0.25 + 0.25;   (1.25, 0.75) -> 0.0625 + 0.0625
    assert value(DoublyStochastic(), [[2, 2]]).item() == pytest.approx(0.5 + 0.125)
    # Padding: one step each: (1, 0) -> 0 + 1;   (0.25, 0.75) -> 0.5625 + 0.0625
    assert value(DoublyStochastic(), [[1, 1]]).item() == pytest.approx(1.0 + 0.625)
    # An absent caption has none.
    assert value(DoublyStochastic(), [[2, 0]]).item() == pytest.approx(0.5)
    # Weights need not sum to one: Σ_t α = (0.75, 0.5) -> 0.0625 + 0.25
    weights = torch.tensor([[[[0.5, 0.0], [0.25, 0.5]]]])
    assert value(DoublyStochastic(), [[2]], weights, UNNORMALISED).item() == pytest.approx(0.3125)
    with pytest.raises(UserError, match="DoublyStochastic"):
        value(DoublyStochastic(), [[1]], torch.tensor([[[[1.5, -0.5]]]]), SIGNED)


@pytest.mark.parametrize("per", [("caption",), ("caption", "region"), ("region",)])
@pytest.mark.parametrize("how", ["plain", "accelerated", "transformer", "ensemble"])
def test_masked_regions_do_not_count(per: tuple[str, ...], how: str):
    """Images padded to one number of regions give the losses and gradients that they give one by one."""
    model: Decoder = decoder()
    if how == "accelerated":
        accelerate(model)
    if how == "transformer":
        model = TransformerDecoder(ScoredAttention(AdditiveScore(6), Softmax()), 2, 4, 2, 5, dropout=0.0)
        model.build((REGION_SIZE,), WORDS, padding=0, start=1)
        model.double()
    if how == "ensemble":
        model = EnsembleDecoder([model, decoder(seed=1)], [[0], [0]], [None, None])
    objective = CrossEntropy([DoublyStochastic(2.0, per)])
    lengths = torch.tensor([[3, 0], [2, 3]])
    words = sentences(lengths)
    captions = CaptionBatch(words, words, lengths)
    parameters, regions = list(model.parameters()), images(2, regions=4)
    losses, gradients = [], []
    for padding in (0, 6):
        mask = (torch.arange(4 + padding) < 4).expand(2, -1) if padding else None
        padded = functional.pad(regions, (0, 0, 0, padding), value=7.0)
        loss = objective(WithoutEncoder(model), one_row(padded, mask), captions).value
        losses.append(loss)
        gradients.append(torch.autograd.grad(loss, parameters, materialize_grads=True))
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(*gradients)


def test_real_regions_are_counted_for_each_caption():
    """An image of two captions and 4 regions, one of a caption and 1 region: 3 regions of a caption."""
    words = torch.zeros(2, 2, 3, dtype=torch.long)
    captions = CaptionBatch(words, words, torch.tensor([[1, 2], [0, 3]]))
    batch = unrolled(torch.zeros(2, 2, 3, 2), captions.lengths, torch.ones(2, 2, 3, 5))
    mask = torch.arange(5) < torch.tensor([[4], [1]])
    mean = count_elements(captions, batch._replace(real=mask)).mean(torch.tensor(27.0), ("caption", "region"))
    assert mean.item() == pytest.approx(27 / 3 / 3)


def test_entropy_is_that_of_the_declared_weights():
    weights = torch.tensor([[[[1.5, -0.5]]]])  # shares of 3/4 and 1/4
    expected = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert value(Entropy(1.0), [[1]], weights, SIGNED).item() == pytest.approx(expected)


def test_entropy_may_begin_later_and_counts_training_batches_alone():
    term = Entropy(0.5, after=2)
    for _ in range(3):
        assert value(term.eval(), [[2, 1]]).item() == 0
    sums = [value(term.train(), [[2, 0]]).item() for _ in range(4)]
    assert sums == pytest.approx([0, 0, math.log(2), math.log(2)])
    resumed = Entropy(0.5, after=2)
    resumed.load_state_dict(term.state_dict())
    assert value(resumed, [[2, 0]]).item() == pytest.approx(math.log(2))


def test_the_penalty_that_the_attention_declares_is_a_mean_over_words():
    heads = torch.arange(16.0).view(1, 2, 2, 4).requires_grad_()
    batch = unrolled(torch.zeros(1, 2, 2, 2), torch.tensor([[2, 1]]), WEIGHTS, maps={"heads": heads})
    targets = torch.zeros(1, 2, 2, dtype=torch.long)
    mean_square = sum(x * x for x in range(12)) / 12  # of the three real steps
    plain, loss = (loss_of(CrossEntropy(terms), batch, targets) for terms in ([], [AttentionPenalty(0.5)]))
    assert loss.logged["attention_penalty"].item() == pytest.approx(mean_square)
    assert (loss.value - plain.value).item() == pytest.approx(0.5 * mean_square, rel=1e-5)
    loss.value.backward()
    assert not loss.logged["attention_penalty"].requires_grad
    torch.testing.assert_close(heads.grad[0, 0], heads.detach()[0, 0] / 12)  # 0.5 · 2 x / 12
    # Without a penalty there is none.
    assert value(AttentionPenalty(0.5), [[2, 1]]).item() == 0


# -- cross-entropy -------------------------------------------------------------------------------------------------


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
    assert loss.logged["NLL"].item() == pytest.approx(2 * math.log(2), rel=1e-5)  # of the words, not smoothed


def test_half_precision_logits_are_summed_in_single():
    half = unrolled(LOGITS.bfloat16(), LENGTHS, WEIGHTS.bfloat16())
    value = loss_of(CrossEntropy(), half, TARGETS).value
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss_of(CrossEntropy(), example(), TARGETS).value, rtol=0.02, atol=0)
