"""Properties of every search: it can be named in YAML, runs on a GPU, and keeps its settings."""

from __future__ import annotations

import pytest
import torch
import yaml
from helpers.search_models import END, START, HashModel
from jsonargparse import ArgumentParser
from torch import Tensor

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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("search", SEARCHES)
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
