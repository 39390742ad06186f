"""Seeds that depend on several numbers, each at its place."""

from itertools import product

from caption.core.runtime.seeds import derive_seed


def test_every_place_counts_and_no_two_seeds_are_equal():
    seeds = {derive_seed(*numbers) for numbers in product(range(5), repeat=3)}
    assert len(seeds) == 125
    assert derive_seed(1, 2) not in {derive_seed(2, 1), derive_seed(3), derive_seed(1, 2, 1)}
    assert all(0 <= seed < 2**62 for seed in seeds)
