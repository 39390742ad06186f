"""Whether the fused kernels run here: they want a GPU, Triton, and what Triton itself needs, such as a C compiler."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

Energies = Callable[[Tensor, Tensor, Tensor, str], Tensor]


def fused_for(keys: Tensor) -> Energies | None:
    """`additive_triton.fused_energies` if it can take these keys, else None.

    Not in double precision, since it computes in single; not where a compiler is at work, which makes a kernel of the
    plain form itself.
    """
    if not keys.is_cuda or keys.dtype == torch.float64 or torch.compiler.is_compiling():
        return None
    return fused_on(keys.device)


@cache
def fused_on(device: torch.device) -> Energies | None:
    """The same for a device, tried out once."""
    try:
        from caption.kernels.additive_triton import fused_energies
    except ImportError:  # there is no Triton for some systems
        return None
    try:
        one = torch.zeros(1, 1, 1, device=device)
        fused_energies(one, one, one[0, 0], "tanh")
    except Exception as error:  # of Triton, of the compiler it calls, of the driver
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        warnings.warn(
            f"additive attention runs without its Triton kernel on {device}: {reason}", stacklevel=2
        )
        return None
    return fused_energies
