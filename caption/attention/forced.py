"""Attention with its weights in somebody else's hands: α[t] ← edit(α[t], t), z[t] = Σ_i α[t,i] a[i].

What experiments on attention are made of: hide a region, swap two maps, look elsewhere at one word, and see what the
model then says.

    decoder = force(captioner.decoder, lambda weights, step: left if step == 2 else None)
    with_parts(captioner, decoder=decoder).describe("photo.jpg")  # looks left for its third word

The captioner and the decoder given stay as they are; the new ones share their weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, Look, Memory
from caption.errors import UserError
from caption.tensor_tree import Record

Edit = Callable[[Tensor, int], "Tensor | None"]
"""`edit(weights, step) -> weights`: weights (B, K, L), the step counted from 0, that of the first word.

What is returned broadcasts to (B, K, L); None, or the very tensor that was given, leaves the step as it is. It need
not sum to 1: what is taken away and not given elsewhere is simply not read. B and K are those of the call: a search
drops images that are done and reorders hypotheses, an unroll sorts its captions. An edit that differs between images
therefore takes one image at a time, or steps a decoder itself.
"""


class Forcing(NamedTuple):
    """What `ForcedAttention` carries."""

    step: Tensor
    """(B, K) int64, steps taken so far."""
    inner: Record
    """What the edited mechanism carries."""


class ForcedAttention(Attention):
    """Another attention whose weights are edited before anything is read with them.

    The edited mechanism attends as always, with its own state, and the context is computed anew from what the edit
    returns. Its other outputs are kept where nothing is edited. Where something is, a mechanism that chooses reads the
    expectation under the new weights: `location` -1, `log_prob` 0.

    Args:
        attention: a mechanism whose context is Σ α_i a_i, or, if it chooses one region, that one's vector.
        edit: see `Edit`.

    Raises:
        UserError: when attending, if the mechanism's context is not made that way (several heads, a sentinel), since
            its weights alone then do not say what it reads.
    """

    def __init__(self, attention: Attention, edit: Edit) -> None:
        super().__init__()
        self.attention = attention
        self.edit = edit

    @property
    def context_size(self) -> int:  # type: ignore[override]  # known after `build`, as everywhere
        return self.attention.context_size

    def build(self, region_size: int, query_size: int) -> None:
        self.attention.build(region_size, query_size)

    def project(self, regions: Tensor, mask: Tensor | None = None) -> Memory:
        return self.attention.project(regions, mask)

    def start(self, memory: Memory, hypotheses: int) -> Record:
        steps = torch.zeros(len(memory.values), hypotheses, dtype=torch.int64, device=memory.values.device)
        return Forcing(steps, self.attention.start(memory, hypotheses))

    def forward(self, query: Tensor, memory: Memory, state: Record = None) -> Look:
        look = self.attention(query, memory, state.inner)
        step = int(state.step.amax()) if state.step.numel() else 0  # all captions are at the same word
        following = Forcing(state.step + 1, look.state)
        edited = self.edit(look.weights, step)
        if edited is None or edited is look.weights:
            return look._replace(state=following)
        _check_context(self.attention, look, memory)
        weights = edited.to(look.weights.dtype).expand_as(look.weights)
        location = None if look.location is None else torch.full_like(look.location, -1)
        log_prob = None if look.log_prob is None else torch.zeros_like(look.log_prob)
        return Look(weights @ memory.values, weights, following, location, log_prob)


Owner = TypeVar("Owner", bound=nn.Module)


def force(decoder: Owner, edit: Edit) -> Owner:
    """The decoder with its attention's weights edited: it shares all parts with the one given, which stays as it is.

    Args:
        decoder: has its mechanism as `attention`.
        edit: see `Edit`.

    Raises:
        UserError: it has none.
    """
    attention = getattr(decoder, "attention", None)
    if not isinstance(attention, Attention):
        raise UserError(
            f"{type(decoder).__name__} has no attention mechanism of its own whose weights could be edited"
        )
    return with_parts(decoder, attention=ForcedAttention(attention, edit))


def with_parts(owner: Owner, **parts: nn.Module) -> Owner:
    """A shallow copy of a module in which some parts are others; weights are shared, nothing is changed in place."""
    made = copy.copy(owner)
    object.__setattr__(made, "_modules", {**owner._modules, **parts})
    return made


def _check_context(attention: Attention, look: Look, memory: Memory) -> None:
    """Only where nothing was chosen: a sampled region's vector is not the expectation."""
    if look.location is not None and bool((look.location >= 0).any()):
        return
    values: Tensor = memory.values
    expected = look.weights @ values
    tolerance = 1e-2 * float(expected.detach().abs().amax() if expected.numel() else 1)
    if look.context.shape != expected.shape or not torch.allclose(
        look.context, expected, rtol=0, atol=tolerance
    ):
        raise UserError(
            f"the weights of {type(attention).__name__} cannot be edited: its context is not the regions' average "
            "under them. Take a mechanism that reads Σ α_i a_i."
        )
