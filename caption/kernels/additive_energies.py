"""Memory-efficient additive energies e = v · f(k + q): the tensor (B, K, L, A) of all sums is never stored.

`plain` is the reference. Its sum k + q, (B, K, L, A), is by far the largest tensor of a decoding step, and autograd
keeps it for every step of a caption. `Energies` keeps only its inputs and recomputes the sums in the backward pass, in
tiles that fit the processor's cache.

Gain: mainly memory. With the plain form, a training step took 1.4 to 2.5 times the memory (D 2048 and 512, 14x14
regions) and, depending on the processor, 0.9 to 1.5 times as long (`docs/results/log.md`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from caption.kernels.first_order import require_first_order

Activation = Literal["tanh", "relu"]
Fused = Callable[[Tensor, Tensor, Tensor, str], Tensor]

TILE = 1 << 17
"""Numbers of k + q computed at once by each thread: half a megabyte, which fits a core's second-level cache."""


def additive_energies(query: Tensor, keys: Tensor, energy: Tensor, activation: Activation) -> Tensor:
    """e[b,k,i] = v · f(keys[b,i] + query[b,k]).

    On a GPU, a Triton kernel computes it in single precision if it can take the keys (`fused_for`); otherwise it is
    computed in the precision of the keys. The result has the same precision. Gradients are exact, but cannot be
    differentiated again.

    Args:
        query: (B, K, A) projected queries.
        keys: (B, L, A) projected regions.
        energy: (A,) v.
        activation: f.

    Returns:
        (B, K, L) scores.
    """
    fused = fused_for(keys)
    if fused is not None:
        return fused(query, keys, energy, activation)
    query, energy = query.to(keys.dtype), energy.to(keys.dtype)
    with torch.autocast(keys.device.type, enabled=False):
        if torch.compiler.is_compiling():  # the compiler fuses the plain form
            return plain(query, keys, energy, activation)
        return Energies.apply(query, keys, energy, activation)


def plain(query: Tensor, keys: Tensor, energy: Tensor, activation: Activation) -> Tensor:
    """The reference form of `additive_energies`."""
    joined = keys[:, None] + query[:, :, None]  # (B, K, L, A)
    return (joined.tanh() if activation == "tanh" else joined.relu()) @ energy


class Energies(torch.autograd.Function):
    """See `additive_energies`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, energy: Tensor, activation: Activation) -> Tensor:
        ctx.save_for_backward(query, keys, energy)
        ctx.activation = activation
        scores = keys.new_empty(*query.shape[:2], keys.shape[1])
        for images, k, activated in tiles(query, keys, activation):
            scores[images, k] = activated @ energy
        return scores

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        require_first_order("the additive energies")
        query, keys, energy = ctx.saved_tensors
        grad_query, grad_energy = torch.empty_like(query), torch.zeros_like(energy)
        grad_keys = torch.zeros_like(keys) if ctx.needs_input_grad[1] else None
        for images, k, activated in tiles(query, keys, ctx.activation):
            error = grad[images, k]  # (n, L)
            grad_energy.addmv_(activated.flatten(0, 1).T, error.flatten())
            grad_sums = through_activation_(error[..., None], activated, ctx.activation)
            torch.sum(grad_sums, 1, out=grad_query[images, k])
            if grad_keys is not None:
                grad_keys[images].addcmul_(grad_sums, energy)
        return grad_query.mul_(energy), grad_keys, grad_energy, None


def tiles(query: Tensor, keys: Tensor, activation: Activation) -> Iterator[tuple[slice, int, Tensor]]:
    """f(keys + query) a tile at a time: some images, one query of each, all regions.

    Yields:
        images, k, and (n, L, A) in memory that the next tile overwrites.
    """
    images, queries = query.shape[:2]
    size = max(1, TILE * torch.get_num_threads() // max(1, keys[:1].numel()))
    if keys.is_cuda:  # few large operations
        size = images
    tile = keys.new_empty(min(size, images), *keys.shape[1:])
    for first in range(0, images, size):
        chunk = slice(first, min(first + size, images))
        for k in range(queries):
            sums = torch.add(keys[chunk], query[chunk, k, None], out=tile[: chunk.stop - first])
            yield chunk, k, sums.tanh_() if activation == "tanh" else sums.relu_()


def through_activation_(error: Tensor, activated: Tensor, activation: Activation) -> Tensor:
    """error · f'(x), computed in place from f(x)."""
    if activation == "tanh":
        return torch.ops.aten.tanh_backward.grad_input(error, activated, grad_input=activated)
    return torch.mul(activated > 0, error, out=activated)


def fused_for(keys: Tensor) -> Fused | None:
    """`additive_triton.fused_energies` if it can take these keys, else None.

    None in double precision, because the kernel computes in single precision, and under torch.compile, which fuses the
    plain form.
    """
    if not keys.is_cuda or keys.dtype == torch.float64 or torch.compiler.is_compiling():
        return None
    return fused_on(keys.device)


@cache
def fused_on(device: torch.device) -> Fused | None:
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
