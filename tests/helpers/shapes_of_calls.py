"""Records the shapes that a module is called with."""

from __future__ import annotations

from torch import nn

from caption.core.tensor_tree import leaves


def shapes(module: nn.Module) -> list[tuple[int, ...]]:
    """Collects the shape of the first tensor that each call of a module gets."""
    calls: list[tuple[int, ...]] = []
    module.register_forward_hook(lambda _, given, result: calls.append(tuple(leaves(given[0])[0].shape)))
    return calls
