"""Editing attention maps with hooks between weighing and reading.

    def look_left(weights, step, grid):
        return left if step == 2 else weights

    with edit_maps(captioner.decoder, look_left, grids=[(7, 7)]):
        captioner.describe("photo.jpg")  # attends to the left for its third word

This works for every mechanism, because all maps pass through `Attention.maps`. The weights of self-attention, among
regions in a refiner or among words in a Transformer decoder, pass through `ScaledDotProduct.maps`:

    with record_self_attention(captioner.refiner) as maps:
        captioner.refine(views)
    maps["views.0.layers.attend.0.product"]  # (B, M, L, L)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from torch import Tensor, nn

from caption.attention.base import Attention
from caption.attention.maps import named_maps, with_maps
from caption.attention.scaled_dot_product import ScaledDotProduct
from caption.core.errors import UserError
from caption.core.regions import Grid

Edit = Callable[[Tensor, int, Grid], Tensor]
"""`edit(map, step, grid) -> map`, for a map (B, K, ..., L) over a grid (rows, cols) and the step, counted from 0 for
the first word. Dimensions between K and L are heads, hops or channels.

Returning the argument itself leaves the step unchanged. The result must broadcast to the map's shape. It need not sum
to 1: weight that is removed from a region is not given to the others. B and K can change from step to step: a search
drops finished images and reorders hypotheses, and an unroll sorts its captions.
"""


class HasAttentions(Protocol):
    """A decoder with attention mechanisms."""

    @property
    def attentions(self) -> Mapping[str, Attention]:
        """The decoder's mechanisms by name."""


def attentions(decoder: HasAttentions) -> dict[str, Attention]:
    """The mechanisms of a decoder by name.

    Raises:
        UserError: the decoder has none.
    """
    if not decoder.attentions:
        raise UserError(f"{type(decoder).__name__} has no attention whose maps could be edited")
    return dict(decoder.attentions)


@contextmanager
def edit_maps(
    decoder: HasAttentions,
    edit: Edit,
    grids: Sequence[Grid],
    first_step: int = 0,
) -> Iterator[None]:
    """Context in which the maps of a decoder's attention are edited before they are read.

    Steps are counted from the start of the context, so each search or unroll needs its own context. The unroll of a
    `TransformerDecoder` weighs all words at once, as step 0 with a query for each; edit its words in a search or by its
    `step`. A mechanism that samples does so from the edited weights.

    Args:
        decoder: restored afterwards, even after an exception.
        edit: see `Edit`; called for each map over a grid.
        grids: (rows, cols) of each view of the images.
        first_step: the number of the first step that runs in the context.

    Raises:
        UserError: see `attentions`.
    """

    def hook(attention: Attention) -> Callable[..., Any]:
        """A forward hook for `Attention.maps` that counts the steps and edits the maps."""
        step = first_step - 1

        def edit_maps(module: nn.Module, args: tuple[Any, ...], maps: Any) -> Any:
            nonlocal step
            step += 1
            before = named_maps(maps)
            after = {name: edit(before[name], step, grid) for name, grid in attention.grids(grids).items()}
            if all(after[name] is before[name] for name in after):
                return None
            shaped = {name: new.to(before[name].dtype).expand_as(before[name]) for name, new in after.items()}
            return with_maps(maps, shaped)

        return edit_maps

    with ExitStack() as stack:
        for attention in attentions(decoder).values():
            stack.enter_context(attention.maps.register_forward_hook(hook(attention)))
        yield


@contextmanager
def record_self_attention(module: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Context in which the weights of all self-attention inside a module are recorded.

    Args:
        module: a refiner or a decoder.

    Yields:
        the weights of each layer's last call, without gradient, by the layer's dotted name in the module: (B, M, L, L)
        among regions in a refiner, (B, K, M, T, T) among words in a Transformer decoder; {} before the first call.
    """
    maps: dict[str, Tensor] = {}

    def hook(name: str) -> Callable[..., None]:
        def record(module: nn.Module, args: tuple[Any, ...], weights: Tensor) -> None:
            maps[name] = weights.detach()

        return record

    with ExitStack() as stack:
        for name, inner in module.named_modules():
            if isinstance(inner, ScaledDotProduct):
                stack.enter_context(inner.maps.register_forward_hook(hook(name)))
        yield maps
