"""Greedy search, and properties of every search: edge cases, precision, options, YAML, a GPU."""

from __future__ import annotations

import math
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import yaml
from helpers import search_reference as reference
from helpers.search_models import END, START, HashModel, captions, check
from hypothesis import given
from hypothesis import strategies as st
from jsonargparse import ArgumentParser
from torch import Tensor

from caption.errors import UserError
from caption.kernels import top_k
from caption.search import BeamSearch, Greedy, Sampling, Search
from caption.tensor_tree import State, TensorTree, map_tensors

SEARCHES = [
    Greedy(12),
    BeamSearch(4, 12, 0.7, candidates=3),
    Sampling(1.3, samples=3, max_length=12, seed=1),
    Sampling(top_k=4, top_p=0.9, samples=3, max_length=12, seed=1),
]


@pytest.mark.parametrize(
    ("description", "wanted"),
    [
        ({"class_path": "caption.search.Greedy", "init_args": {"max_length": 7}}, Greedy(7)),
        ({"class_path": "caption.search.BeamSearch"}, BeamSearch()),
        (
            {"class_path": "caption.search.Sampling", "init_args": {"top_k": 5, "top_p": None, "seed": 1}},
            Sampling(top_k=5, seed=1),
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_by_class_path(description: dict[str, object], wanted: Search) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--search", type=Search)
    parsed = parser.parse_string(yaml.safe_dump({"search": description}))
    assert parser.instantiate_classes(parsed).search == wanted


@given(
    seed=st.integers(0, 10**6),
    words=st.integers(2, 7),
    images=st.integers(1, 5),
    max_length=st.integers(1, 8),
    holes=st.sampled_from([0.0, 0.3, 0.9]),
    forbidden=st.sets(st.integers(0, 1), max_size=2),
    block=st.sampled_from([1, 2, 3, 64]),
)
def test_greedy_search_equals_the_naive_one(
    seed: int, words: int, images: int, max_length: int, holes: float, forbidden: set[int], block: int
) -> None:
    model, batch, barred = HashModel(words, seed, holes), list(range(images)), sorted(forbidden)
    with patch.object(top_k, "BLOCK", block):
        hypotheses = Greedy(max_length)(model.step, model.start(batch), images, START, END, barred)
    check(hypotheses, model, batch, max_length, barred)
    for image in batch:
        wanted = reference.greedy(partial(model.next_log_probs, image), END, max_length, barred)
        assert captions(hypotheses, image) == [wanted.words]
        assert hypotheses.finished[image].tolist() == [wanted.finished]
        assert hypotheses.log_probs[image].tolist() == [wanted.log_prob]


every_search = pytest.mark.parametrize("search", SEARCHES, ids=repr)


@every_search
@pytest.mark.parametrize("value", [-math.inf, math.nan])
def test_no_word_is_possible(search: Search, value: float) -> None:
    def step(state: State, words: Tensor) -> tuple[Tensor, State]:
        return torch.full((*words.shape, 4), value), State(None, None, words.float())

    hypotheses = search(step, State(None, None, None), 2, START, END)
    assert (hypotheses.words.shape[0], hypotheses.words.shape[2]) == (2, 0)
    assert not hypotheses.finished.any()
    assert (hypotheses.log_probs[:, 0] == 0).all()


@every_search
def test_no_images(search: Search) -> None:
    model = HashModel(5, seed=0)
    hypotheses = search(model.step, model.start([]), 0, START, END)
    assert hypotheses.words.shape == (*hypotheses.finished.shape, 0)
    assert len(hypotheses.finished) == 0


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
def test_the_models_tensor_is_left_alone_and_no_gradient_is_kept(search: Search) -> None:
    log_probs = torch.tensor([0.1, 0.2, 0.3, 0.4]).log().requires_grad_()
    before = log_probs.detach().clone()

    def step(state: State, words: Tensor) -> tuple[Tensor, State]:
        return log_probs.expand(*words.shape, 4), State(None, None, None)

    hypotheses = search(step, State(None, None, None), 2, START, END, [3])
    assert hypotheses.trace is None
    assert torch.equal(log_probs, before)
    assert not hypotheses.log_probs.requires_grad
    assert not (hypotheses.words == 3).any()


@pytest.mark.parametrize(
    ("kind", "arguments", "culprit"),
    [
        (Greedy, {"max_length": 0}, "max_length"),
        (Greedy, {"max_length": 2.5}, "max_length"),
        (BeamSearch, {"beam_size": 0}, "beam_size"),
        (BeamSearch, {"beam_size": 1001}, "beam_size"),
        (BeamSearch, {"candidates": 1.0}, "candidates"),
        (BeamSearch, {"length_normalization": "1"}, "length_normalization"),
        (BeamSearch, {"max_length": 0}, "max_length"),
        (BeamSearch, {"length_normalization": -0.1}, "length_normalization"),
        (BeamSearch, {"length_normalization": math.nan}, "length_normalization"),
        (BeamSearch, {"beam_size": 2, "candidates": 3}, "candidates"),
        (Sampling, {"temperature": 0.0}, "temperature"),
        (Sampling, {"temperature": "1"}, "temperature"),
        (Sampling, {"temperature": math.nan}, "temperature"),
        (Sampling, {"top_k": 0}, "top_k"),
        (Sampling, {"top_k": 2.5}, "top_k"),
        (Sampling, {"top_p": 0.0}, "top_p"),
        (Sampling, {"top_p": 1.1}, "top_p"),
        (Sampling, {"top_p": "0.5"}, "top_p"),
        (Sampling, {"samples": 10**6}, "samples"),
        (Sampling, {"seed": "x"}, "seed"),
    ],
)
def test_numbers_out_of_range(kind: type[Search], arguments: dict[str, Any], culprit: str) -> None:
    with pytest.raises(UserError, match=culprit):
        kind(**arguments)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@every_search
def test_the_gpu_finds_the_same(search: Search) -> None:
    model, batch = HashModel(9, seed=6), list(range(10))

    def to(record: TensorTree, device: str) -> TensorTree:
        return map_tensors(lambda tensor: tensor.to(device), record)

    def step(state: State, words: Tensor) -> tuple[Tensor, State]:
        assert words.is_cuda
        return to(model.step(to(state, "cpu"), words.cpu()), "cuda")

    on_gpu = search(step, to(model.start(batch), "cuda"), len(batch), START, END, [START])
    on_cpu = search(model.step, model.start(batch), len(batch), START, END, [START])
    assert on_gpu.words.is_cuda
    assert torch.equal(on_gpu.words.cpu(), on_cpu.words)
    assert torch.equal(on_gpu.finished.cpu(), on_cpu.finished)
    assert torch.equal(on_gpu.trace.past.cpu(), on_cpu.trace.past)
    torch.testing.assert_close(on_gpu.scores.cpu(), on_cpu.scores)
