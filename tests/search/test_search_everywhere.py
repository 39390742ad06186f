"""Properties of every search: edge cases, precision, options, a GPU."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers.search_models import END, START, HashModel, captions
from torch import Tensor

from caption.core.tensor_tree import State, leaves, map_tensors
from caption.search import BeamSearch, Greedy, Sampling, Search, loop

SEARCHES = [
    Greedy(12),
    BeamSearch(4, 12, 0.7, candidates=3),
    Sampling(1.3, samples=3, max_length=12, seed=1),
    Sampling(top_k=4, top_p=0.9, samples=3, max_length=12, seed=1),
    BeamSearch(4, 12, 0.7, candidates=3, repeat_penalty=1.0),
]


every_search = pytest.mark.parametrize("search", SEARCHES, ids=repr)


@every_search
@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_no_word_is_possible_or_there_are_no_images(search: Search, value: float) -> None:
    def step(state: State, words: Tensor) -> tuple[Tensor, State]:
        return torch.full((*words.shape, 4), value), State(None, None, words.float())

    for images in (2, 0):
        hypotheses = search(step, State(None, None, None), images, START, END)
        assert (hypotheses.words.shape[0], hypotheses.words.shape[2]) == (images, 0)
        assert len(hypotheses.finished) == images
        assert not hypotheses.finished.any()
        assert (hypotheses.log_probs[:, 0] == 0).all()


@every_search
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single(search: Search, dtype: torch.dtype) -> None:
    model = HashModel(9, seed=5, dtype=dtype)
    hypotheses = search(model.step, model.start([0, 1, 2]), 3, START, END, [END])
    assert hypotheses.log_probs.dtype == hypotheses.word_log_probs.dtype == torch.float32
    for image, place in np.ndindex(*hypotheses.finished.shape):
        words = captions(hypotheses, image)[place]
        terms = [model.next_log_probs(image, words[:time])[word] for time, word in enumerate(words)]
        assert hypotheses.word_log_probs[image, place].tolist() == [*terms, 0.0]
        assert float(hypotheses.log_probs[image, place]) == pytest.approx(sum(terms), rel=1e-6)


@every_search
def test_the_models_tensor_is_left_alone_and_neither_nan_is_said_nor_a_gradient_kept(search: Search) -> None:
    log_probs = torch.tensor([0.1, 0.2, math.nan, 0.4]).log().requires_grad_()
    before = log_probs.detach().clone()

    def step(state: State, words: Tensor) -> tuple[Tensor, State]:
        return log_probs.expand(*words.shape, 4), State(None, None, None)

    hypotheses = search(step, State(None, None, None), 2, START, END, [3])
    assert hypotheses.trace is None
    assert torch.equal(log_probs.nan_to_num(nan=7.0), before.nan_to_num(nan=7.0))
    assert not hypotheses.log_probs.requires_grad
    assert not (hypotheses.words >= 2).any()


@every_search
def test_the_loop_for_a_gpu_finds_the_same(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished images stay in the batch, and the host asks every few steps. The log-probabilities of real steps, and
    the record of a beam, are the same."""
    model, batch, found = HashModel(9, seed=6), list(range(10)), []
    for host in (True, False):
        monkeypatch.setattr(loop, "is_host", lambda device, host=host: host)
        found.append(search(model.step, model.start(batch), len(batch), START, END, [START], record=True))
    here, there = found
    for one, other in zip(
        leaves(here._replace(record=None)), leaves(there._replace(record=None)), strict=True
    ):
        torch.testing.assert_close(one, other)
    assert here.record is not None
    assert there.record is not None
    assert torch.equal(here.record.steps, there.record.steps)
    for image, steps in enumerate(here.record.steps.tolist()):
        for name in ("words", "parents", "log_probs"):
            one, other = (getattr(record, name)[image, :steps] for record in (here.record, there.record))
            torch.testing.assert_close(one, other)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_search
def test_the_gpu_finds_the_same(search: Search) -> None:
    model, batch, found = HashModel(9, seed=6), list(range(10)), []
    for device in ("cuda", "cpu"):
        model.table, model.weights = model.table.to(device), model.weights.to(device)
        state = map_tensors(lambda tensor, device=device: tensor.to(device), model.start(batch))
        found.append(search(model.step, state, len(batch), START, END, [START]))
    on_gpu, on_cpu = found
    assert on_gpu.words.is_cuda
    for name in ("words", "finished", "scores"):
        torch.testing.assert_close(getattr(on_gpu, name).cpu(), getattr(on_cpu, name))
    assert torch.equal(on_gpu.trace.past.cpu(), on_cpu.trace.past)
