"""Modules in evaluation mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Have a module, with all below it, in evaluation mode; afterwards, come what may, in the mode that it was in."""
    was_training = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was_training)
