"""A check for hand-written gradients, which cannot be differentiated again."""

from __future__ import annotations

import torch


def require_first_order(of: str) -> None:
    """Reject `create_graph=True`; for the backward pass of a `torch.autograd.Function` that does not build a graph.

    `once_differentiable` is not enough: it accepts `create_graph=True` if the incoming gradient has no graph, and the
    second derivative then silently lacks the contribution of the function.

    Args:
        of: name of the function, for the message.

    Raises:
        RuntimeError: autograd records a graph of this backward pass.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(f"gradients of {of} cannot be differentiated again: leave out create_graph=True")
