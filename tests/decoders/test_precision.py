"""The decoder under autocast, as Lightning's bf16-mixed runs it."""

from __future__ import annotations

import pytest
import torch
from helpers.dispatched import Dispatched
from helpers.tiny_decoder import decoder, images, sentences, unroll
from helpers.tiny_views import one_row
from torch import Tensor

from caption.attention import Multinoulli
from caption.decoders import Gate, ShowAttendAndTellDecoder
from caption.objectives import word_log_likelihoods

LENGTHS = torch.tensor([[3, 0, 5], [1, 4, 2], [2, 2, 1]])


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
def test_sums_stay_in_single_precision(alignment: Multinoulli | None):
    """The cell state, α, whose sums over the steps are penalised, and its statistics keep full precision."""
    model = small(decoder(alignment, gate=Gate())).eval()
    regions, words = images(3).float(), sentences(LENGTHS)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        memory = model.project(one_row(regions))
        state = model.start(memory, 3)
        assert state.carried.cell.dtype == torch.float32
        log_probs, state = model.step(state, words[..., 0])
        assert state.carried.cell.dtype == torch.float32
        assert state.trace.weights.dtype == torch.float32
        assert log_probs.dtype == torch.float32
        unrolled = unroll(model, regions, words, LENGTHS)
        assert unrolled.trace.weights.dtype == torch.float32


def test_no_step_converts_the_regions():
    """Autocast would convert the values, the largest tensor, once per step."""
    model, regions, words = small(decoder(gate=Gate())), images(3).float(), sentences(LENGTHS)
    with torch.autocast("cpu", torch.bfloat16):
        memory = model.project(one_row(regions))
        with Dispatched() as ran:
            model(memory, words, LENGTHS)
    of_steps = [given[0][1:] for name, given, _ in ran.calls if name == "_to_copy"]
    assert of_steps  # conversions of the queries, for instance
    assert regions.shape[1:] not in of_steps
