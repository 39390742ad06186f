"""The teacher-forced unroll: it equals stepping for any lengths, padding has no effect, and neither has autocast, as
Lightning's bf16-mixed runs it, beyond its rounding."""

from __future__ import annotations

import pytest
import torch
from helpers.dispatched import Dispatched
from helpers.shapes_of_calls import shapes
from helpers.tiny_decoder import PAD, REGION_SIZE, WORDS, decoder, images, sentences, unroll
from helpers.tiny_views import one_row
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from caption.attention import Multinoulli
from caption.decoders import Gate, ShowAttendAndTellDecoder, Unrolled
from caption.objectives import word_log_likelihoods


@given(
    lengths=st.integers(1, 3).flatmap(
        lambda k: st.lists(st.lists(st.integers(0, 5), min_size=k, max_size=k), min_size=1, max_size=4)
    ),
    padding=st.integers(0, 2),
    seed=st.integers(0, 1000),
)
def test_the_unroll_equals_stepping_for_any_lengths(lengths: list[list[int]], padding: int, seed: int):
    model, steps = decoder(seed=seed, gate=Gate()), torch.tensor(lengths)
    words = sentences(steps, longest=max(1, int(steps.max()) + padding), seed=seed)
    regions = images(len(lengths), seed=seed)
    unrolled = unroll(model, regions, words, steps)
    real = torch.arange(words.shape[-1]) < steps[..., None]
    assert unrolled.shape == tuple(words.shape)
    assert not unrolled.queries.requires_grad  # what learns from them does not train the decoder
    assert torch.equal(unrolled.unpack(torch.ones_like(unrolled.positions)).bool(), real)
    log_probs = unrolled.unpack(unrolled.logits.log_softmax(-1)).float()
    state = model.start(model.project(one_row(regions)), words.shape[1])
    for t in range(words.shape[-1]):
        scored, state = model.step(state, words[..., t])
        now = real[..., t]
        torch.testing.assert_close(log_probs[..., t, :][now], scored[now], atol=1e-5, rtol=1e-5)


def loss_and_gradients(
    model: ShowAttendAndTellDecoder, regions: Tensor, words: Tensor, lengths: Tensor
) -> list[Tensor]:
    model.zero_grad()
    regions = regions.clone().requires_grad_()
    unrolled = unroll(model, regions, words, lengths)
    loss = unrolled.logits.log_softmax(-1)[:, 1].sum() + unrolled.trace.weights.square().sum()
    loss.backward()
    return [loss.detach(), regions.grad, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]


def test_padding_never_counts_in_values_or_gradients():
    model = decoder(gate=Gate())
    lengths = torch.tensor([[2, 4], [1, 0]])
    regions, words = images(2), sentences(lengths)
    padded = torch.arange(4) >= lengths[..., None]
    junk = torch.where(padded, torch.randint(1, WORDS, words.shape), words)
    longer = torch.cat((junk, torch.full((2, 2, 3), 5)), -1)
    expected = loss_and_gradients(model, regions, words, lengths)
    for other in (junk, longer):
        for before, after in zip(expected, loss_and_gradients(model, regions, other, lengths), strict=True):
            torch.testing.assert_close(after, before)


def test_the_padding_word_gets_no_gradient_even_where_it_is_fed():
    model = decoder()
    unroll(model, images(1), torch.tensor([[[3, PAD]]]), torch.tensor([[2]])).logits.sum().backward()
    assert (model.embed.weight.grad[PAD] == 0).all()


@pytest.mark.parametrize("alignment", [None, Multinoulli()])
def test_a_batch_without_any_caption_is_empty(alignment: Multinoulli | None):
    model = decoder(alignment, gate=Gate())
    unrolled = unroll(model, images(2), torch.full((2, 2, 3), PAD), torch.zeros(2, 2, dtype=torch.long))
    assert unrolled.logits.shape == (0, WORDS)
    assert unrolled.trace.weights.shape == (0, 6)
    assert not unrolled.has_steps().any()
    assert unrolled.unpack(unrolled.logits).shape == (2, 2, 3, WORDS)


def test_packing_by_hand():
    unrolled = Unrolled(torch.zeros(3, 1), None, torch.zeros(3, 1), torch.tensor([4, 0, 1]), (1, 3, 3))
    padded = torch.tensor([[[10, 11, 12], [20, 21, 22], [30, 31, 32]]])
    assert unrolled.pack(padded).tolist() == [21, 10, 11]
    assert unrolled.unpack(torch.tensor([1, 2, 3])).tolist() == [[[2, 3, 0], [0, 1, 0], [0, 0, 0]]]
    assert unrolled.has_steps().tolist() == [[True, True, False]]


def test_what_does_not_depend_on_the_loop_runs_once():
    """Keys neither at each step nor for each of the K captions, the output layer for real steps only."""
    model = decoder()
    parts = (
        model.attention.score.region,
        model.initial,
        model.embed,
        model.readout.to_words,
        model.attention,
    )
    keys, initials, embeddings, outputs, attended = map(shapes, parts)
    lengths = torch.tensor([[1, 2], [4, 3], [2, 0]])
    unroll(model, images(3), sentences(lengths), lengths)
    assert keys == [(3, 6, REGION_SIZE)]
    assert len(initials) == len(embeddings) == 1
    assert outputs == [(12, 5)]
    assert [shape[:2] for shape in attended] == 4 * [(3, 2)]
    state = model.start(model.project(one_row(images(2))), hypotheses=3)
    for _ in range(4):
        _, state = model.step(state, torch.ones(2, 3, dtype=torch.long))
    assert keys == [(3, 6, REGION_SIZE), (2, 6, REGION_SIZE)]


# -- precision ---------------------------------------------------------------------------------------------

LENGTHS = torch.tensor([[3, 0, 5], [1, 4, 2], [2, 2, 1]])


def test_regions_stored_in_half_precision_are_taken():
    model = decoder().float()
    words, regions = sentences(LENGTHS), images(3).half()
    half, single = (unroll(model, given, words, LENGTHS) for given in (regions, regions.float()))
    assert half.logits.dtype == torch.float32
    torch.testing.assert_close(half.logits, single.logits)


def loss(model: ShowAttendAndTellDecoder, regions: Tensor, low: bool) -> Tensor:
    words = sentences(LENGTHS)
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        unrolled = unroll(model, regions, words, LENGTHS)
        value = word_log_likelihoods(unrolled, words.roll(-1, -1)).mean()
        return value + unrolled.unpack(unrolled.trace.weights).sum(2).square().mean()


def small(model: ShowAttendAndTellDecoder) -> ShowAttendAndTellDecoder:
    """Weights of size 0.1, with which the rounding errors of bf16 do not grow over the steps."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 0.3
    return model.float()


def test_values_and_gradients_are_those_of_single_precision_to_its_rounding():
    model, regions = small(decoder(gate=Gate())), images(3).float()
    parameters = dict(model.named_parameters())
    values, gradients = [], []
    for low in (False, True):
        value = loss(model, regions, low)
        values.append(value.item())
        gradients.append(torch.autograd.grad(value, list(parameters.values())))
    assert values[1] == pytest.approx(values[0], rel=0.01)
    assert values[1] != values[0]  # it is not single precision after all
    for name, ours, theirs in zip(parameters, gradients[1], gradients[0], strict=True):
        assert ours.dtype == torch.float32
        assert float((ours - theirs).norm() / theirs.norm()) < 0.05, name


@pytest.mark.parametrize("alignment", [None, Multinoulli(at_test="argmax")])
def test_sums_stay_in_single_precision_and_no_step_converts_the_regions(alignment: Multinoulli | None):
    """The cell state, α, whose sums over the steps are penalised, and its statistics keep full precision. Autocast
    would convert the values, the largest tensor, once per step."""
    model = small(decoder(alignment, gate=Gate())).eval()
    regions, words = images(3).float(), sentences(LENGTHS)
    with torch.autocast("cpu", torch.bfloat16):
        memory = model.project(one_row(regions))
        before = model.start(memory, 3)
        log_probs, after = model.step(before, words[..., 0])
        with Dispatched() as ran:
            unrolled = model(memory, words, LENGTHS)
    for sums in (
        before.carried.cell,
        after.carried.cell,
        after.trace.weights,
        log_probs,
        unrolled.trace.weights,
    ):
        assert sums.dtype == torch.float32
    of_steps = [given[0][1:] for name, given, _ in ran.calls if name == "_to_copy"]
    assert of_steps  # conversions of the queries, for instance
    assert regions.shape[1:] not in of_steps
