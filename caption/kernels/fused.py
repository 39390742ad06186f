"""Availability of the fused kernels, which need a GPU, Triton and a C compiler."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

Energies = Callable[[Tensor, Tensor, Tensor, str], Tensor]


def fused_for(keys: Tensor) -> Energies | None:
    """`additive_triton.fused_energies` if it can take these keys, else None.

    None in double precision, because the kernel computes in single precision, and under torch.compile, which fuses the
    plain form.
    """
    if not keys.is_cuda or keys.dtype == torch.float64 or torch.compiler.is_compiling():
        return None
    return fused_on(keys.device)


@cache
def fused_on(device: torch.device) -> Energies | None:
    """`fused_energies` if it runs on a device, else None; tested once per device."""
    try:
        from caption.kernels.additive_triton import fused_energies
    except ImportError:  # Triton does not exist for some systems
        return None
    try:
        one = torch.zeros(1, 1, 1, device=device)
        fused_energies(one, one, one[0, 0], "tanh")
    except Exception as error:  # from Triton, its compiler or the driver
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        warnings.warn(
            f"additive attention runs without its Triton kernel on {device}: {reason}", stacklevel=2
        )
        return None
    return fused_energies
