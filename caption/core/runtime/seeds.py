"""Random seeds that depend on several numbers."""

from __future__ import annotations

import numpy as np


def derive_seed(*numbers: int) -> int:
    """A seed, 0 to 2⁶² − 1, that depends on all `numbers`, such as run, epoch and step: sums of them would repeat."""
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> 2)
