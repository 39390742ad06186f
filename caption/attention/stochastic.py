"""The base class of mechanisms that sample, and context managers that control their sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from torch import Tensor, nn

from caption.attention.maps import categorical
from caption.core.errors import UserError
from caption.core.parts import check_choice

AtTest = Literal["expectation", "argmax", "sample"]
"""The reading outside training: the expected context (the authors' default), the most probable location, or a
sample."""

Draw = Callable[[Tensor], Tensor]
"""α (B, K, L) -> locations (B, K) int64."""


class Stochastic(nn.Module):
    """Base class of attention parts that sample a location. Custom mechanisms that sample also derive from it: first
    from `Stochastic`, then from `Attention` or `Alignment`. Those that choose regions sample with `draw`.

    Args:
        at_test: how it reads outside training, see `AtTest`.

    Raises:
        UserError: `at_test` is another string.
    """

    def __init__(self, at_test: AtTest = "expectation") -> None:
        super().__init__()
        check_choice("at_test", at_test, get_args(AtTest))
        self.at_test = at_test
        self._draw: Draw | None = None

    @property
    def draws_overridden(self) -> bool:
        """Whether `override_draws` replaces sampling; in training, every caption then samples."""
        return self._draw is not None

    def draw(self, weights: Tensor) -> Tensor:
        """Regions (B, K) int64, sampled from α (B, K, L) or given by `override_draws`.

        No gradient flows through it.
        """
        if self._draw is not None:
            return self._draw(weights)
        return categorical(weights.detach().float())


def stochastic_parts(model: nn.Module) -> list[Stochastic]:
    """The parts of a model that sample locations."""
    return [part for part in model.modules() if isinstance(part, Stochastic)]


@contextmanager
def override_at_test(model: nn.Module, how: AtTest | None) -> Iterator[None]:
    """Context in which the sampling mechanisms in `model` read `how` outside training, instead of their own setting.

    Args:
        model: captioner or decoder; a model that does not sample is unchanged.
        how: "expectation", "argmax" or "sample"; None = each mechanism's own setting.
    """
    if how is None:
        yield
        return
    check_choice("how", how, get_args(AtTest))
    parts = stochastic_parts(model)
    before = [part.at_test for part in parts]
    try:
        for part in parts:
            part.at_test = how
        yield
    finally:
        for part, setting in zip(parts, before, strict=True):
            part.at_test = setting


@contextmanager
def override_draws(model: nn.Module, draw: Draw) -> Iterator[None]:
    """Context in which the sampling mechanisms in `model` take regions from `draw` instead of sampling them.

    A mechanism that samples points instead, such as `GlimpseAttention`, goes on sampling.

    Raises:
        UserError: no mechanism in `model` samples.
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
