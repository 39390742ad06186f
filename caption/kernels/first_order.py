"""Gradients that are computed by hand and cannot be differentiated again."""

from __future__ import annotations

import torch


def require_first_order(of: str) -> None:
    """To be called in the backward pass of a `torch.autograd.Function` that keeps no graph of it.

    `once_differentiable` does not do: where the gradient that comes in has no graph, it lets `create_graph=True` pass,
    and the second derivative is silently without what the function has to do with it.

    Args:
        of: what has the gradient, for the message.

    Raises:
        RuntimeError: autograd is to keep a graph of this pass.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(f"gradients of {of} cannot be differentiated again: leave out create_graph=True")
