"""Reference searches over plain lists, one image at a time, slow and simple."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

Next = Callable[[list[int]], list[float]]


class Reference(NamedTuple):
    words: list[int]
    log_prob: float
    score: float
    finished: bool


def allowed(log_probs: list[float], forbidden: Sequence[int]) -> list[tuple[int, float]]:
    return [
        (word, log_prob)
        for word, log_prob in enumerate(log_probs)
        if word not in forbidden and log_prob > -math.inf
    ]


def greedy(following: Next, end: int, max_length: int, forbidden: Sequence[int]) -> Reference:
    """A beam of one."""
    options = {"beam_size": 1, "normalization": 0.0, "candidates": 1}
    return beam(following, end, forbidden, max_length=max_length, **options)[0]


def beam(
    following: Next,
    end: int,
    forbidden: Sequence[int],
    *,
    beam_size: int,
    max_length: int,
    normalization: float,
    candidates: int,
) -> list[Reference]:
    """It does not stop early: it continues to `max_length` while a hypothesis is unfinished."""
    steps = kept_at_each_step(following, end, forbidden, beam_size=beam_size, max_length=max_length)
    ended = [one for step in steps for one in step if one.words[-1] == end]
    live = [one for one in steps[-1] if one.words[-1] != end] if steps else [Kept([], None, 0.0)]
    pool = [Reference(w[:-1], p, p / len(w) ** normalization, True) for w, _, p in ended]
    pool.sort(key=lambda caption: -caption.score)
    rest = [Reference(w, p, p / max(len(w), 1) ** normalization, False) for w, _, p in live]
    rest.sort(key=lambda caption: -caption.score)
    return (pool + rest)[:candidates]


class Kept(NamedTuple):
    """A hypothesis that a beam search keeps at a step."""

    words: list[int]
    parent: int | None
    """Its place among those of the step before, the ended ones included."""
    total: float


def kept_at_each_step(
    following: Next, end: int, forbidden: Sequence[int], *, beam_size: int, max_length: int
) -> list[list[Kept]]:
    """The `beam_size` most probable extensions of each step, those with the end word included; no early stop."""
    steps: list[list[Kept]] = []
    live: list[tuple[int | None, list[int], float]] = [(None, [], 0.0)]
    while live and len(steps) < max_length:
        extensions = [
            Kept([*words, word], place, total + log_prob)
            for place, words, total in live
            for word, log_prob in allowed(following(words), forbidden)
        ]
        if not extensions:
            break
        steps.append(sorted(extensions, key=lambda one: -one.total)[:beam_size])
        live = [(place, one.words, one.total) for place, one in enumerate(steps[-1]) if one.words[-1] != end]
    return steps


def truncated(
    log_probs: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> list[float]:
    """The probabilities from which sampling draws."""
    powers = [math.exp(log_prob / temperature) for log_prob in log_probs]
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
            return Reference(words, total, total, True)
        words = [*words, word]
    return Reference(words, total, total, False)


def exhaustive(
    following: Next, words: int, end: int, max_length: int, normalization: float
) -> list[Reference]:
    """All finished captions, best first."""
    everything = []
    inner = [word for word in range(words) if word != end]
    for length in range(1, max_length + 1):
        for prefix in itertools.product(inner, repeat=length - 1):
            emitted = [*prefix, end]
            total = 0.0
            for time, word in enumerate(emitted):
                total += following(emitted[:time])[word]
            if total > -math.inf:
                everything.append(Reference(list(prefix), total, total / length**normalization, True))
    return sorted(everything, key=lambda caption: -caption.score)
