"""Triton kernels for e = v · f(k + q) and its gradient, which never store the sums (B, K, L, A).

Both keep a tile of keys, some regions at their full width, in registers and loop over the image's queries. The keys are
read once for any number of queries, and k + q never leaves the chip; the backward pass recomputes it. All arithmetic is
in float32. With tanh, the tile holds e^{2k}, so that each of the numbers costs one reciprocal (derived in
`additive_energies`). If a key of the tile is beyond ±40, its keys and the queries are divided by a power of 2, and the
product of their exponentials is squared as often. A query's exponential is multiplied twice by its root, which float32
holds up to ±80; beyond that, tanh is ±1 for each of these keys.

The tiles' contributions to the gradients of a query and of v are written separately and summed afterwards, so that
results are deterministic.

Only the energies are fused. The softmax between them and the context belongs to the alignment, which is exchangeable. A
kernel for all three would save little: the weights must be written in any case, a query's energies and weights together
are A/4 times smaller than half-precision keys, and a matrix product reads the values, D wide, once in both cases.

The plain form is `additive_energies.plain`. Gain: not measured yet, because no GPU was at hand. `python -m
tools.benchmark --only kernel --device cuda` measures time, memory and error beside the plain form and the tiles.

Needs Triton 3, which PyTorch installs with its GPU builds.
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import, unused-ignore]
import triton.language as tl  # type: ignore[import, unused-ignore]
from torch import Tensor

from caption.kernels.first_order import require_first_order

FAR = tl.constexpr(40.0)
"""Keys up to this have exponentials that float32 holds."""
TILE = 1 << 13
"""Numbers of a tile of keys: 64 per thread forward; 32 backward, because their gradient needs registers, too."""
MOST_ROWS = 32
"""Maximal number of regions of a tile, so that narrow keys still give enough tiles to keep a GPU busy."""


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
    """Compute the scores of some regions of an image for all its queries."""
    image = tl.program_id(0).to(tl.int64)  # B · L · A may exceed 32 bits
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside, real = column < width, row < regions
    offset = row.to(tl.int64)[:, None] * region_stride + column.to(tl.int64)[None, :] * width_stride
    mask = real[:, None] & inside[None, :]
    tile = tl.load(keys + image * image_stride + offset, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(energy + column, mask=inside, other=0.0).to(tl.float32)
    if not RELU:
        squarings = tl.clamp(tl.ceil(tl.log2(tl.max(tl.abs(tile)) / FAR)), 0.0, 10.0).to(tl.int32)
        scale = tl.exp2(-squarings.to(tl.float32))
        tile = tl.exp(2 * tl.clamp(scale * tile, -FAR, FAR, tl.PropagateNan.ALL))
    for k in range(queries):
        query_index = image * queries + k
        q = tl.load(query + query_index * width + column, mask=inside, other=0.0).to(tl.float32)
        if RELU:
            sums = tile + q[None, :]
            activated = tl.where(sums <= 0, 0.0, sums)  # not `maximum`, which would hide NaN
        else:
            root = tl.exp(tl.clamp(scale * q, -2 * FAR, 2 * FAR, tl.PropagateNan.ALL))[None, :]
            exponential = tile * root * root
            for _ in range(squarings):
                exponential *= exponential
            activated = 1 - 2 / (1 + exponential)
        tl.store(scores + query_index * regions + row, tl.sum(activated * v[None, :], 1), mask=real)


@triton.jit
def backward_kernel(  # type: ignore[no-untyped-def]
    query,
    keys,
    energy,
    grad,
    grad_query,
    grad_keys,
    grad_energy,
    queries,
    regions,
    width,
    image_stride,
    region_stride,
    width_stride,
    RELU: tl.constexpr,
    NEEDS_KEYS_GRAD: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Compute the gradient of some regions' keys, and their part of the gradients of the queries and of v."""
    image = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside, real = column < width, row < regions
    offset = row.to(tl.int64)[:, None] * region_stride + column.to(tl.int64)[None, :] * width_stride
    mask = real[:, None] & inside[None, :]
    tile = tl.load(keys + image * image_stride + offset, mask=mask, other=0.0).to(tl.float32)
    v = tl.load(energy + column, mask=inside, other=0.0).to(tl.float32)
    program = image * tl.num_programs(1) + tl.program_id(1)
    grad_v = tl.full((COLUMNS,), 0.0, tl.float32)
    grad_tile = tl.full((ROWS, COLUMNS), 0.0, tl.float32)
    if not RELU:
        squarings = tl.clamp(tl.ceil(tl.log2(tl.max(tl.abs(tile)) / FAR)), 0.0, 10.0).to(tl.int32)
        scale = tl.exp2(-squarings.to(tl.float32))
        tile = tl.exp(2 * tl.clamp(scale * tile, -FAR, FAR, tl.PropagateNan.ALL))
    for k in range(queries):
        query_index = image * queries + k
        q = tl.load(query + query_index * width + column, mask=inside, other=0.0).to(tl.float32)
        error = tl.load(grad + query_index * regions + row, mask=real, other=0.0).to(tl.float32)[:, None]
        if RELU:
            sums = tile + q[None, :]
            grad_v += tl.sum(error * tl.where(sums <= 0, 0.0, sums), 0)
            grad_sums = tl.where(sums <= 0, 0.0, error)
        else:
            root = tl.exp(tl.clamp(scale * q, -2 * FAR, 2 * FAR, tl.PropagateNan.ALL))[None, :]
            exponential = tile * root * root
            for _ in range(squarings):
                exponential *= exponential
            complement = 2 / (1 + exponential)  # 1 − tanh
            grad_v += tl.sum(error * (1 - complement), 0)
            grad_sums = error * (complement * (2 - complement))  # (1 − tanh)(1 + tanh)
        tl.store(grad_query + (program * queries + k) * width + column, tl.sum(grad_sums, 0) * v, mask=inside)
        grad_tile += grad_sums
    tl.store(grad_energy + program * width + column, grad_v, mask=inside)
    if NEEDS_KEYS_GRAD:
        target = grad_keys + image * regions * width + row.to(tl.int64)[:, None] * width + column[None, :]
        tl.store(target, grad_tile * v[None, :], mask=mask)


def fused_energies(query: Tensor, keys: Tensor, energy: Tensor, activation: str) -> Tensor:
    """e[b,k,i] = v · f(keys[b,i] + query[b,k]).

    Gradients are exact and the same in every run (no atomic additions), but cannot be differentiated again.

    Args:
        query: (B, K, A) projected queries; float32, bfloat16 or float16. All tensors must be on a GPU.
        keys: (B, L, A) projected regions, with any strides.
        energy: (A,) v.
        activation: f, "tanh" or "relu".

    Returns:
        (B, K, L) scores in float32.

    Raises:
        ValueError: the sizes do not fit, so that a kernel would read beyond a tensor's end.
        RuntimeError: in the backward pass with `create_graph=True`.
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
        needs_keys_grad = ctx.needs_input_grad[1]
        grad_keys = keys.new_empty(keys.shape if needs_keys_grad else 0)
        grad_query = keys.new_empty(images, programs, queries, width, dtype=torch.float32)
        grad_energy = keys.new_empty(images, programs, width, dtype=torch.float32)
        with torch.cuda.device_of(keys):
            backward_kernel[images, programs](
                query,
                keys,
                energy,
                grad.contiguous(),
                grad_query,
                grad_keys,
                grad_energy,
                queries,
                regions,
                width,
                *keys.stride(),
                RELU=ctx.activation == "relu",
                NEEDS_KEYS_GRAD=needs_keys_grad,
                ROWS=rows,
                COLUMNS=columns,
                num_warps=8,
                enable_fp_fusion=True,
            )
        return (
            grad_query.sum(1).to(query.dtype),
            grad_keys if needs_keys_grad else None,
            grad_energy.sum((0, 1)).to(energy.dtype),
            None,
        )


def tile(regions: int, width: int) -> tuple[int, int]:
    """Number of regions and their padded width in a program, powers of 2. The width is complete, so a score is one
    sum."""
    columns = triton.next_power_of_2(width)
    return max(1, min(TILE // columns, MOST_ROWS, triton.next_power_of_2(regions))), columns
