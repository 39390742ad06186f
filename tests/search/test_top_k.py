"""The most probable words and the sampled word, found by blocks, against a search of all words."""

from __future__ import annotations

import math

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from caption.search.top_k import BLOCK, inverse_cdf, top_k

SIZES = st.one_of(st.integers(1, 3), st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, 7 * BLOCK + 3]))


@given(
    seed=st.integers(0, 10**6),
    words=SIZES,
    count=st.integers(1, 8),
    holes=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    ties=st.booleans(),
)
# Few possible words, one of them in the short block.
@example(seed=428522, words=7 * BLOCK + 3, count=5, holes=0.99, ties=False)
def test_the_largest_are_those_of_topk(seed: int, words: int, count: int, holes: float, ties: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(2, 3, words, generator=generator)
    values = values.round() if ties else values
    values[torch.rand(values.shape, generator=generator) < holes] = -math.inf
    largest, places = top_k(values, count)
    assert torch.equal(largest, values.topk(min(count, words)).values)
    assert torch.equal(values.gather(-1, places), largest)
    assert all(len(set(row)) == len(row) for row in places.flatten(0, 1).tolist()), "each place once"


@given(
    seed=st.integers(0, 10**6),
    words=SIZES,
    holes=st.sampled_from([0.0, 0.5, 0.95]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_inversion_is_that_of_the_cumulated_weights(
    seed: int, words: int, holes: float, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.rand(4, words, generator=generator, dtype=dtype)
    weights[torch.rand(weights.shape, generator=generator) < holes] = 0
    weights[:, words // 2] = 1.0
    chance = torch.rand(4, generator=generator, dtype=torch.float64)
    places = inverse_cdf(weights, chance).tolist()
    for row, number, place in zip(weights.double(), chance, places, strict=True):
        assert row[place] > 0
        reached = row.cumsum(0)
        wanted, slack = float(number * reached[-1]), 1e-6 * float(reached[-1])
        assert float(reached[place - 1]) * (place > 0) - slack <= wanted <= float(reached[place]) + slack


def test_inversion_avoids_the_impossible() -> None:
    weights = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]], dtype=torch.float64).expand(5, 5)
    below_one = math.nextafter(1, 0)
    chance = torch.tensor([0.0, math.nextafter(0.25, 0), 0.25, 0.5, below_one], dtype=torch.float64)
    assert inverse_cdf(weights, chance).tolist() == [1, 1, 3, 3, 3]
    thirds = torch.tensor([1 / 3, 1 / 3, 1 / 3 + 1e-16, 0.0], dtype=torch.float64) * 3
    assert int(inverse_cdf(thirds, torch.tensor(below_one, dtype=torch.float64))) == 2


def test_a_rare_word_has_its_chance() -> None:
    """A probability of 10^-12, which single precision would round to 0 in a sum with the others."""
    weights = torch.full((2 * BLOCK,), 1e-12)
    weights[0] = 1.0
    chance = torch.tensor([1 - 0.5e-12, 1 - 60e-12, 1 - 130e-12], dtype=torch.float64)
    last, late, first = inverse_cdf(weights.expand(3, -1), chance).tolist()
    assert BLOCK <= late < last
    assert first == 0
