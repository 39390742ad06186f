"""Sampling: against a naive implementation, its reproducibility, and the reported log-probabilities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple
from unittest.mock import patch

import pytest
import torch
from helpers.search_models import END, START, HashModel, captions, check, penalised
from hypothesis import given
from hypothesis import strategies as st

from caption.search import Hypotheses, Sampling, top_k

Next = Callable[[list[int]], list[float]]


class Reference(NamedTuple):
    words: list[int]
    log_prob: float
    finished: bool


def truncated(
    log_probs: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> list[float]:
    """The probabilities from which sampling draws."""
    highest = max(log_probs)  # with a penalty on all words, their powers would be 0
    powers = [math.exp((log_prob - highest) / temperature) for log_prob in log_probs]
    order = sorted(range(len(powers)), key=lambda word: -powers[word])[:top_k]
    kept: list[int] = []
    for word in order:
        if top_p is not None and sum(powers[w] for w in kept) >= top_p * sum(powers[w] for w in order):
            break
        kept.append(word)
    return [
        power / sum(powers[w] for w in kept) if word in kept else 0.0 for word, power in enumerate(powers)
    ]


def sample(
    following: Next,
    chance: Sequence[float],
    end: int,
    forbidden: Sequence[int],
    *,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
) -> Reference:
    """At each step, the first word whose cumulative probability exceeds the step's random number."""
    words: list[int] = []
    total = 0.0
    for number in chance:
        log_probs = following(words)
        barred = [-math.inf if word in forbidden else log_probs[word] for word in range(len(log_probs))]
        if max(barred) == -math.inf:
            break
        probs = truncated(barred, temperature, top_k, top_p)
        order = range(len(probs))
        if top_k is not None or top_p is not None:  # in the order in which words were admitted
            order = sorted(order, key=lambda word: -probs[word])
        reached = itertools.accumulate(probs[word] for word in order)
        word = next(
            word
            for word, sum_so_far in zip(order, reached, strict=True)
            if sum_so_far > number * sum(probs) and probs[word] > 0
        )
        total += log_probs[word]
        if word == end:
            return Reference(words, total, True)
        words = [*words, word]
    return Reference(words, total, False)


def draw(model: HashModel, sampling: Sampling) -> Hypotheses:
    return sampling(model.step, model.start([0]), 1, START, END)


@given(
    seed=st.integers(0, 10**6),
    words=st.integers(2, 9),
    images=st.integers(1, 4),
    sampling=st.builds(
        Sampling,
        temperature=st.sampled_from([0.3, 1.0, 2.0]),
        top_k=st.sampled_from([None, 1, 3, 20]),
        top_p=st.sampled_from([None, 0.5, 0.95]),
        samples=st.integers(1, 4),
        max_length=st.integers(1, 8),
        repeat_penalty=st.sampled_from([0.0, 0.7, 1000.0]),
    ),
    content=st.sets(st.integers(2, 4)),
    holes=st.sampled_from([0.0, 0.3, 0.9]),
    forbidden=st.sets(st.integers(0, 1), max_size=2),
    block=st.sampled_from([1, 2, 3, 64]),
)
def test_the_same_numbers_draw_the_words_of_the_naive_one(
    seed: int,
    words: int,
    images: int,
    sampling: Sampling,
    content: set[int],
    holes: float,
    forbidden: set[int],
    block: int,
) -> None:
    model, batch, barred = HashModel(words, seed, holes), list(range(images)), sorted(forbidden)
    shape = (images, sampling.samples, sampling.max_length)
    chance = torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    with patch.object(top_k, "BLOCK", block):
        torch.manual_seed(seed)
        hypotheses = sampling(model.step, model.start(batch), images, START, END, barred, [*content])
    check(hypotheses, model, batch, sampling.max_length, barred)
    for image in batch:
        following = penalised(partial(model.next_log_probs, image), content, sampling.repeat_penalty)
        options = {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p")}
        draws = chance[image].tolist()
        wanted = [sample(following, numbers, END, barred, **options) for numbers in draws]
        wanted.sort(key=lambda one: (-one.finished, -one.log_prob))
        assert captions(hypotheses, image) == [one.words for one in wanted]
        assert hypotheses.finished[image].tolist() == [one.finished for one in wanted]
        log_probs = [one.log_prob for one in wanted]
        assert hypotheses.scores[image].tolist() == pytest.approx(log_probs, rel=1e-12)
    assert sampling.repeat_penalty or torch.equal(hypotheses.scores, hypotheses.log_probs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [1e-4, 1e-300])
def test_a_cold_sample_is_greedy(temperature: float, dtype: torch.dtype) -> None:
    model = HashModel(6, seed=8, dtype=dtype)
    hypotheses = draw(model, Sampling(temperature=temperature, max_length=10, seed=0))
    following, options = partial(model.next_log_probs, 0), {"temperature": 1.0, "top_k": 1, "top_p": None}
    assert captions(hypotheses, 0) == [sample(following, [0.5] * 10, END, [], **options).words]


def test_a_seed_repeats_itself_and_none_follows_torch() -> None:
    model = HashModel(6, seed=8)
    seeded = Sampling(samples=4, seed=3)
    assert torch.equal(draw(model, seeded).words, draw(model, seeded).words)
    torch.manual_seed(11)
    one, two = draw(model, Sampling(samples=8)), draw(model, Sampling(samples=8))
    torch.manual_seed(11)
    again = draw(model, Sampling(samples=8))
    assert torch.equal(one.words, again.words)
    assert captions(one, 0) != captions(two, 0)


def test_one_state_of_the_generator_gives_the_same_samples_for_any_batch_size() -> None:
    model, sampling = HashModel(6, seed=9), Sampling(samples=3, max_length=12)

    def run(*batches: list[int]) -> list[list[list[int]]]:
        torch.manual_seed(5)
        found = [(sampling(model.step, model.start(b), len(b), START, END), len(b)) for b in batches]
        return [captions(hypotheses, place) for hypotheses, size in found for place in range(size)]

    batch = list(range(7))
    assert run(batch) == run(*([image] for image in batch)) == run(batch[:3], batch[3:])
    assert len(set(model.batches)) > 3
