"""log softmax(x)[y], which keeps nothing for the backward pass that is not there already.

PyTorch's own keeps log softmax(x), as large as the logits and in single precision even where those are in half: with a
vocabulary of thousands of words the largest tensor of a training step. Here the softmax is taken anew in the backward
pass, some rows at a time, which on a CPU stay in its cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from caption.kernels.first_order import require_first_order

PIECE = 1 << 19
"""Numbers that a CPU works on at once: two megabytes."""


def log_likelihoods(logits: Tensor, targets: Tensor) -> Tensor:
    """log p(y) with p = softmax(x), in single precision at least. The gradient cannot be differentiated again.

    Args:
        logits: (N, V) x.
        targets: (N,) int64 y.

    Returns:
        (N,) in nats.
    """
    return LogLikelihood.apply(logits, targets)


class LogLikelihood(torch.autograd.Function):
    """See `log_likelihoods`."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        largest, rest = torch.empty(2, len(logits), 1, dtype=dtype, device=logits.device)
        for rows in pieces(logits):
            torch.amax(logits[rows].to(dtype), 1, keepdim=True, out=largest[rows])
            torch.sum(torch.sub(logits[rows], largest[rows]).exp_(), 1, keepdim=True, out=rest[rows])
        rest.log_()  # two numbers, since log Σ exp(x) of large logits would take the digits of what is subtracted
        ctx.save_for_backward(logits, targets, largest, rest)
        return (logits.gather(1, targets[:, None]).to(dtype) - largest - rest).squeeze(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        require_first_order("log-likelihoods")
        logits, targets, largest, rest = ctx.saved_tensors
        of_logits, targets, grad = torch.empty_like(logits), targets[:, None], grad[:, None]
        for rows in pieces(logits):
            probabilities = torch.sub(logits[rows], largest[rows]).sub_(rest[rows]).exp_()
            of_logits[rows] = probabilities.mul_(-grad[rows]).scatter_add_(1, targets[rows], grad[rows])
        return of_logits, None


def pieces(logits: Tensor) -> Iterator[slice]:
    """Some rows at a time; on a GPU all of them."""
    rows, words = logits.shape
    size = (
        max(1, PIECE * torch.get_num_threads() // max(1, words))
        if logits.device.type == "cpu"
        else max(1, rows)
    )
    for first in range(0, rows, size):
        yield slice(first, first + size)
