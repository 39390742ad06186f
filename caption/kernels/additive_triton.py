"""e = v · f(k + q) on a GPU: one Triton kernel forward and one backward, which keep nothing of (B, K, L, A).

Both hold a tile of keys, some regions at their full width, in registers, and take the image's queries to it one by one:
the keys are read once however many queries there are, and k + q never leaves the chip. The backward pass computes it
anew. All arithmetic is in float32, whatever the tensors' precision. What several tiles add to the gradient of a query
or of v is written apart and summed afterwards, so that every run gives the same.

Only the energies are fused. The softmax between them and the context belongs to the alignment, which is exchangeable,
and a kernel that did all three would save little: the weights have to be written anyhow, a query's energies and weights
together are A/4 times smaller than half-precision keys, and a matrix product reads the values, D wide, once either way.

Needs Triton 3, which PyTorch brings along where it runs on GPUs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import, unused-ignore]
import triton.language as tl  # type: ignore[import, unused-ignore]
from torch import Tensor

from caption.kernels.first_order import require_first_order

TILE = 1 << 13
"""Numbers of a tile of keys: 64 for each thread forward; 32 backward, where their gradient stands beside them."""
MOST_ROWS = 32
"""Regions of a tile: no more where keys are narrow, so that there are tiles enough to keep a GPU busy."""


@triton.jit
def forward_kernel(  # type: ignore[no-untyped-def]
    query,
    keys,
    energy,
    scores,
    queries,
    regions,
    width,
    image_stride,
    region_stride,
    width_stride,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Scores of some regions of an image with all its queries."""
    image = tl.program_id(0).to(tl.int64)  # B · L · A may pass what 32 bits hold
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside, real = column < width, row < regions
    place = row.to(tl.int64)[:, None] * region_stride + column.to(tl.int64)[None, :] * width_stride
    mask = real[:, None] & inside[None, :]
    tile = tl.load(keys + image * image_stride + place, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(energy + column, mask=inside, other=0.0).to(tl.float32)
    for k in range(queries):
        one = image * queries + k
        q = tl.load(query + one * width + column, mask=inside, other=0.0).to(tl.float32)
        sums = tile + q[None, :]
        # The ReLU is no maximum, which would hide what is not a number.
        activated = tl.where(sums <= 0, 0.0, sums) if RELU else 1 - 2 / (tl.exp(2 * sums) + 1)
        tl.store(scores + one * regions + row, tl.sum(activated * v[None, :], 1), mask=real)


@triton.jit
def backward_kernel(  # type: ignore[no-untyped-def]
    query,
    keys,
    energy,
    grad,
    of_query,
    of_keys,
    of_energy,
    queries,
    regions,
    width,
    image_stride,
    region_stride,
    width_stride,
    RELU: tl.constexpr,
    WANTS_KEYS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Gradient of some regions' keys, and these regions' share in the gradients of the queries and of v."""
    image = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside, real = column < width, row < regions
    place = row.to(tl.int64)[:, None] * region_stride + column.to(tl.int64)[None, :] * width_stride
    mask = real[:, None] & inside[None, :]
    tile = tl.load(keys + image * image_stride + place, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(energy + column, mask=inside, other=0.0).to(tl.float32)
    program = image * tl.num_programs(1) + tl.program_id(1)
    of_v = tl.full((COLUMNS,), 0.0, tl.float32)
    of_tile = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    for k in range(queries):
        one = image * queries + k
        q = tl.load(query + one * width + column, mask=inside, other=0.0).to(tl.float32)
        error = tl.load(grad + one * regions + row, mask=real, other=0.0).to(tl.float32)[:, None]
        sums = tile + q[None, :]
        if RELU:
            of_v += tl.sum(error * tl.where(sums <= 0, 0.0, sums), 0)
            sloped = tl.where(sums <= 0, 0.0, error)
        else:
            rest = 2 / (tl.exp(2 * sums) + 1)  # 1 − tanh
            of_v += tl.sum(error * (1 - rest), 0)
            sloped = error * (rest * (2 - rest))  # (1 − tanh)(1 + tanh)
        tl.store(of_query + (program * queries + k) * width + column, tl.sum(sloped, 0) * v, mask=inside)
        of_tile += sloped
    tl.store(of_energy + program * width + column, of_v, mask=inside)
    if WANTS_KEYS:
        there = of_keys + image * regions * width + row.to(tl.int64)[:, None] * width + column[None, :]
        tl.store(there, of_tile * v[None, :], mask=mask)


def fused_energies(query: Tensor, keys: Tensor, energy: Tensor, activation: str) -> Tensor:
    """e[b,k,i] = v · f(keys[b,i] + query[b,k]).

    Gradients are exact and the same in every run (no atomic additions), but cannot be differentiated again.

    Args:
        query: (B, K, A) projected queries, on a GPU as all of them; float32, bfloat16 or float16.
        keys: (B, L, A) projected regions, with any strides.
        energy: (A,) v.
        activation: f, "tanh" or "relu".

    Returns:
        (B, K, L) scores in float32.

    Raises:
        ValueError: sizes that do not fit; a kernel would read on behind a tensor's end.
        RuntimeError: in the backward pass, if it is to be differentiated itself (`create_graph`).
    """
    if query.shape[::2] != keys.shape[::2] or energy.shape != keys.shape[2:]:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (query, keys, energy))
        raise ValueError(f"queries (B, K, A), keys (B, L, A) and v (A,) do not fit each other: {shapes}")
    return FusedEnergies.apply(query, keys, energy, activation)


class FusedEnergies(torch.autograd.Function):
    """See `fused_energies`."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, keys: Tensor, energy: Tensor, activation: str) -> Tensor:
        query, energy = query.contiguous(), energy.contiguous()
        ctx.save_for_backward(query, keys, energy)
        ctx.activation = activation
        (images, regions, width), queries = keys.shape, query.shape[1]
        scores = keys.new_empty(images, queries, regions, dtype=torch.float32)
        if scores.numel():
            rows, columns = tile(regions, width)
            with torch.cuda.device_of(keys):  # Triton launches on the current device
                forward_kernel[images, triton.cdiv(regions, rows)](
                    query,
                    keys,
                    energy,
                    scores,
                    queries,
                    regions,
                    width,
                    *keys.stride(),
                    RELU=activation == "relu",
                    ROWS=rows,
                    COLUMNS=columns,
                    num_warps=4,
                    enable_fp_fusion=True,
                )
        return scores

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        require_first_order("the additive energies")
        query, keys, energy = ctx.saved_tensors
        if not grad.numel():
            return torch.zeros_like(query), torch.zeros_like(keys), torch.zeros_like(energy), None
        (images, regions, width), queries = keys.shape, query.shape[1]
        rows, columns = tile(regions, width)
        programs = triton.cdiv(regions, rows)
        wants_keys = ctx.needs_input_grad[1]
        of_keys = keys.new_empty(keys.shape if wants_keys else 0)
        of_query = keys.new_empty(images, programs, queries, width, dtype=torch.float32)
        of_energy = keys.new_empty(images, programs, width, dtype=torch.float32)
        with torch.cuda.device_of(keys):
            backward_kernel[images, programs](
                query,
                keys,
                energy,
                grad.contiguous(),
                of_query,
                of_keys,
                of_energy,
                queries,
                regions,
                width,
                *keys.stride(),
                RELU=ctx.activation == "relu",
                WANTS_KEYS=wants_keys,
                ROWS=rows,
                COLUMNS=columns,
                num_warps=8,
                enable_fp_fusion=True,
            )
        return (
            of_query.sum(1).to(query.dtype),
            of_keys if wants_keys else None,
            of_energy.sum((0, 1)).to(energy.dtype),
            None,
        )


def tile(regions: int, width: int) -> tuple[int, int]:
    """Regions and numbers of each that a program holds, powers of 2: the full width, so that a score is one sum."""
    columns = triton.next_power_of_2(width)
    return max(1, min(TILE // columns, MOST_ROWS, triton.next_power_of_2(regions))), columns
