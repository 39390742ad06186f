"""What every mechanism that samples offers, whatever it samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from torch import Tensor, nn

from caption.errors import UserError
from caption.parts import check_choice

AtTest = Literal["expectation", "argmax", "sample"]
"""What is read outside training: the expected context (the authors' default), the most probable place, or a sample."""

Draw = Callable[[Tensor], Tensor]
"""log α (B, K, L) -> locations (B, K) int64."""


class Stochastic(nn.Module):
    """A part of an attention mechanism that samples where to look. Mechanisms outside this package derive from it too.

    Args:
        at_test: what is read outside training.

    Raises:
        ValueError: another choice.
    """

    def __init__(self, at_test: AtTest = "expectation") -> None:
        super().__init__()
        check_choice("at_test", at_test, get_args(AtTest))
        self.at_test = at_test
        self._draw: Draw | None = None

    @property
    def told(self) -> bool:
        """Whether `drawing` decides where it looks; it then samples for every caption in training."""
        return self._draw is not None

    def draw(self, log_weights: Tensor) -> Tensor:
        """Regions (B, K) int64, sampled from log α (B, K, L), or from what `drawing` puts in the place of chance.

        No gradient goes through it.
        """
        if self._draw is not None:
            return self._draw(log_weights)
        flat = log_weights.detach().float().exp().flatten(0, -2)
        return flat.multinomial(1).view(log_weights.shape[:-1])


def stochastic_parts(model: nn.Module) -> list[Stochastic]:
    """The parts of a model that sample where to look."""
    return [part for part in model.modules() if isinstance(part, Stochastic)]


@contextmanager
def at_test(model: nn.Module, how: AtTest) -> Iterator[None]:
    """Within it, the mechanisms in `model` that sample read `how` outside training, whatever they were made to do.

    Args:
        model: captioner or decoder; a model that does not sample stays as it is.
        how: "expectation", "argmax" or "sample".
    """
    check_choice("how", how, get_args(AtTest))
    parts = stochastic_parts(model)
    before = [part.at_test for part in parts]
    try:
        for part in parts:
            part.at_test = how
        yield
    finally:
        for part, own in zip(parts, before, strict=True):
            part.at_test = own


@contextmanager
def drawing(model: nn.Module, draw: Draw) -> Iterator[None]:
    """Within it, the mechanisms in `model` that sample regions take them from `draw` instead of from chance.

    Raises:
        UserError: nothing in `model` samples.
    """
    parts = stochastic_parts(model)
    if not parts:
        raise UserError(f"{type(model).__name__} has no attention that samples: take one such as Multinoulli")
    try:
        for part in parts:
            part._draw = draw
        yield
    finally:
        for part in parts:
            part._draw = None
