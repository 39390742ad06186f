"""The teacher-forced unroll: it equals stepping for any lengths, and padding has no effect."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.dispatched import Dispatched
from helpers.tiny_decoder import PAD, REGION_SIZE, WORDS, decoder, images, sentences, unroll
from helpers.tiny_views import one_row
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from caption.attention import Multinoulli
from caption.decoders import Gate, ShowAttendAndTellDecoder, Unrolled


def stepped(model: ShowAttendAndTellDecoder, regions: Tensor, words: Tensor) -> tuple[Tensor, Any]:
    """log-probabilities (B, K, T, V) and the traces of T steps, by stepping through the padded words."""
    state = model.start(model.project(one_row(regions)), words.shape[1])
    log_probs, traces = [], []
    for t in range(words.shape[-1]):
        scored, state = model.step(state, words[..., t])
        log_probs.append(scored)
        traces.append(state.trace)
    return torch.stack(log_probs, 2), traces


def check_against_steps(
    model: ShowAttendAndTellDecoder, regions: Tensor, words: Tensor, lengths: Tensor
) -> None:
    unrolled = unroll(model, regions, words, lengths)
    log_probs, traces = stepped(model, regions, words)
    real = torch.arange(words.shape[-1]) < lengths[..., None]
    assert unrolled.shape == tuple(words.shape)
    assert torch.equal(unrolled.unpack(torch.ones_like(unrolled.positions)).bool(), real)
    torch.testing.assert_close(
        unrolled.unpack(unrolled.logits.log_softmax(-1))[real].float(), log_probs[real], atol=1e-5, rtol=1e-5
    )
    for name in ("weights", "gate", "location", "log_prob"):
        field = getattr(unrolled.trace, name)
        if field is None:
            assert all(getattr(trace, name) is None for trace in traces)
        else:
            by_steps = torch.stack([getattr(trace, name) for trace in traces], 2)
            torch.testing.assert_close(unrolled.unpack(field)[real], by_steps[real])


@given(
    lengths=st.integers(1, 3).flatmap(
        lambda k: st.lists(st.lists(st.integers(0, 5), min_size=k, max_size=k), min_size=1, max_size=4)
    ),
    padding=st.integers(0, 2),
    seed=st.integers(0, 1000),
)
def test_the_unroll_equals_stepping_for_any_lengths(lengths: list[list[int]], padding: int, seed: int):
    model = decoder(seed=seed, gate=Gate())
    steps = torch.tensor(lengths)
    words = sentences(steps, longest=max(1, int(steps.max()) + padding), seed=seed)
    check_against_steps(model, images(len(lengths), seed=seed), words, steps)


# -- padding -----------------------------------------------------------------------------------------------


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


def test_an_image_without_captions_takes_no_part():
    model = decoder()
    regions = images(3).requires_grad_()
    lengths = torch.tensor([[2, 1], [0, 0], [0, 3]])
    unrolled = unroll(model, regions, sentences(lengths), lengths)
    assert unrolled.has_steps().tolist() == [[True, True], [False, False], [False, True]]
    assert len(unrolled.logits) == 6
    unrolled.logits.sum().backward()
    assert (regions.grad[1] == 0).all()
    assert (regions.grad[2] != 0).any()


@pytest.mark.parametrize("alignment", [None, Multinoulli()])
def test_a_batch_without_any_caption_is_empty(alignment: Multinoulli | None):
    model = decoder(alignment, gate=Gate())
    unrolled = unroll(model, images(2), torch.full((2, 2, 3), PAD), torch.zeros(2, 2, dtype=torch.long))
    assert unrolled.logits.shape == (0, WORDS)
    assert unrolled.trace.weights.shape == (0, 6)
    assert not unrolled.has_steps().any()
    assert unrolled.unpack(unrolled.logits).shape == (2, 2, 3, WORDS)


# -- packing -----------------------------------------------------------------------------------------------


def test_packing_by_hand():
    unrolled = Unrolled(torch.zeros(3, 1), None, torch.zeros(3, 1), torch.tensor([4, 0, 1]), (1, 2, 3))
    padded = torch.tensor([[[10, 11, 12], [20, 21, 22]]])
    assert unrolled.pack(padded).tolist() == [21, 10, 11]
    assert unrolled.unpack(torch.tensor([1, 2, 3])).tolist() == [[[2, 3, 0], [0, 1, 0]]]
    assert unrolled.has_steps().tolist() == [[True, True]]


# -- work done only once -----------------------------------------------------------------------------------


def count(module: nn.Module) -> list[Any]:
    calls: list[Any] = []
    module.register_forward_hook(lambda _, arguments, result: calls.append(arguments))
    return calls


def test_the_memory_is_computed_once(monkeypatch: pytest.MonkeyPatch):
    model = decoder()
    projected = []
    keys = model.attention.score.keys
    monkeypatch.setattr(
        model.attention.score,
        "keys",
        lambda regions: projected.append(regions.vectors.shape) or keys(regions),
    )
    initials = count(model.initial)
    lengths = torch.tensor([[5, 4, 2], [3, 3, 1]])
    unroll(model, images(2), sentences(lengths), lengths)
    assert projected == [(2, 6, REGION_SIZE)]  # neither at each step nor for each of the K captions
    assert len(initials) == 1
    state = model.start(model.project(one_row(images(2))), hypotheses=3)
    for _ in range(4):
        _, state = model.step(state, torch.ones(2, 3, dtype=torch.long))
    assert projected == [(2, 6, REGION_SIZE)] * 2


def test_finished_captions_leave_the_loop_and_the_output_layer_runs_once_for_real_steps_only():
    model = decoder()
    attended, outputs, embeddings = count(model.attention), count(model.readout.to_words), count(model.embed)
    lengths = torch.tensor([[1, 2], [4, 3], [2, 0]])
    unroll(model, images(3), sentences(lengths, longest=9), lengths)
    assert [arguments[0].shape[0] for arguments in outputs] == [12]
    assert len(embeddings) == 1
    assert [tuple(query.hidden.shape[:2]) for query, *_ in attended] == [(3, 2), (3, 2), (1, 2), (1, 1)]


def test_a_gradient_of_the_memory_is_no_larger_than_what_the_step_before_read():
    """The gradient of a slice of the whole would be as large as the whole at each step."""
    model, lengths = decoder(), torch.tensor([[5], [3], [3], [1]])
    logits = unroll(model, images(4), sentences(lengths), lengths).logits
    with Dispatched() as ran:
        logits.sum().backward()
    keys = model.attention.score.keys(one_row(images(1))[0]).tensor.shape[1:]
    made_whole = sorted(
        result for name, _, result in ran.calls if name == "slice_backward" and result[1:] == keys
    )
    assert made_whole == [(3, *keys), (4, *keys)]


# -- inputs ------------------------------------------------------------------------------------------------


def test_regions_stored_in_half_precision_are_taken():
    model = decoder().float()
    lengths = torch.tensor([[3]])
    regions = images(1).half()
    given = unroll(model, regions, sentences(lengths), lengths)
    assert given.logits.dtype == torch.float32
    torch.testing.assert_close(
        given.logits, unroll(model, regions.float(), sentences(lengths), lengths).logits
    )
