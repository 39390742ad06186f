"""A warning where lower precision is slower than full precision: on processors without units for it."""

from __future__ import annotations

import timeit

import torch
from pytorch_lightning.utilities import rank_zero_warn

SIZE = 256
"""Rows and columns of the measured product."""
TOLERATED = 1.5
"""How many times slower lower precision may be; training has other work, too."""


def warn_if_slower(precision: str, device: torch.device) -> None:
    """Measure a small product on a CPU in a few milliseconds, and warn if `precision`, such as "bf16-mixed", is slower
    than float32."""
    lower = {"bf16": torch.bfloat16, "16": torch.float16}.get(precision.partition("-")[0])
    if lower is None or device.type != "cpu":
        return
    ratio = seconds(lower) / seconds(torch.float32)
    if ratio > TOLERATED:
        rank_zero_warn(
            f"on this processor a matrix product takes {ratio:.1f} times as long with {precision} as with 32-true "
            f"({SIZE}x{SIZE}, measured now): leave out trainer.precision"
        )


def seconds(dtype: torch.dtype) -> float:
    """The shortest of four measured times of a product of two square matrices, of which the first warms up."""
    matrix = torch.ones(SIZE, SIZE, dtype=dtype)
    return min(timeit.repeat(lambda: matrix @ matrix, number=1, repeat=4))
