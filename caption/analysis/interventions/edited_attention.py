"""Edits applied to a decoder: maps changed at every step, erased regions masked, equal samples drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caption.analysis.interventions.forced_attention import scaled_like
from caption.analysis.map_arithmetic import resampled
from caption.attention.map_hooks import Edit, attentions, edit_maps
from caption.attention.stochastic import stochastic_parts
from caption.core.regions import Grid, Regions, Views
from caption.decoders.base import Decoder


def mask_views(views: Views, visible: Mapping[Grid, Tensor]) -> Views:
    """Views in which only some regions are left: (L,) bool by grid; {} = all."""

    def left(view: Regions) -> Regions:
        mask = visible[view.grid].to(view.vectors.device).expand(view.vectors.shape[:2])
        return view._replace(mask=mask if view.mask is None else view.mask & mask)

    return tuple(map(left, views)) if visible else views


def combine_edits(edits: Sequence[Edit], visible: Mapping[Grid, Tensor] | None = None) -> Edit:
    """Edits one after the other, which leave no weight on erased regions.

    `visible` are (L,) bool by grid, the regions that are left, those of the first view first. On a mechanism's own
    coarser grid, a region is left if a part of it is. Weights that an edit puts on erased regions are lost, and the
    rest is scaled to the sum of the map.
    """

    def left(visible: Mapping[Grid, Tensor], grid: Grid) -> Tensor:
        own, regions = next(iter(visible.items()))
        return visible[grid] if grid in visible else resampled(regions.double(), own, grid) > 0

    def edit(weights: Tensor, step: int, grid: Grid) -> Tensor:
        after = weights
        for apply in edits:
            after = apply(after, step, grid)
        if after is weights or not visible:
            return after
        return scaled_like(after * left(visible, grid).to(after), after)

    return edit


@contextmanager
def edited_attention(
    decoder: Decoder, edit: Edit, grids: Sequence[Grid], seed: int, first_step: int = 0
) -> Iterator[None]:
    """Edit the attention within the context, and seed its samples at each step.

    Captioners that differ only in their edits therefore draw the same samples. For one search or one caption, since
    steps are counted, from `first_step` on.
    """
    drawing = ExitStack()

    def seeding(number: int) -> Callable[..., None]:
        step = first_step - 1

        def seed_step(*of_hook: Any) -> None:
            nonlocal step
            step += 1
            of_step = np.random.SeedSequence((seed, step, number)).generate_state(1)[0]
            drawing.enter_context(fixed_seed(int(of_step), next(decoder.parameters()).device))

        return seed_step

    with ExitStack() as stack:
        stack.enter_context(edit_maps(decoder, edit, grids, first_step=first_step))
        stack.callback(drawing.close)
        for number, attention in enumerate(attentions(decoder).values()):
            if stochastic_parts(attention):
                stack.enter_context(attention.register_forward_pre_hook(seeding(number)))
                stack.enter_context(attention.register_forward_hook(lambda *of_hook: drawing.close()))
        yield


@contextmanager
def fixed_seed(seed: int, device: torch.device) -> Iterator[None]:
    """Draw random numbers from `seed` within the context; the global generators are not changed."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        # `torch.manual_seed` also prepares all other devices, which takes longer than a small decoder's step.
        set_seed = torch.default_generator.manual_seed if device.type == "cpu" else torch.manual_seed
        set_seed(seed)
        yield
