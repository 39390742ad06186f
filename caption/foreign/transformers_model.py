"""Models of transformers: their text models run step by step, and their attention to the image is ours.

Public extension points alone are used. A registered attention function gets queries, keys and values of every layer
that goes through transformers' attention interface. Layers with an attention of their own (BLIP, GIT) have a forward
hook, which replaces their output. Outside of a step of `ForeignDecoder`, both leave a model as it is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from caption.errors import UserError
from caption.foreign.attention import LayerMemory
from caption.foreign.model import Attend, ForeignModel, ImageTokens, Memory
from caption.foreign.preprocessing import ProcessorTransform, WholePhotoTransform
from caption.regions import Grid
from caption.tensor_tree import TensorTree

NAME = "caption"
"""Of the attention function, among transformers' implementations."""

Route = Callable[[nn.Module, Tensor, Tensor | None, Tensor | None], Tensor | None]
"""A layer's module, its queries (R, M, T, d), scaled, keys and values (R, M', T', d) -> context (R, T, M, d); None =
the layer attends as it does by itself."""

_route: ContextVar[Route | None] = ContextVar("route", default=None)


@contextmanager
def routed(route: Route) -> Iterator[None]:
    """Within it, attention of this thread asks `route` first."""
    token = _route.set(route)
    try:
        yield
    finally:
        _route.reset(token)


def _attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """The attention function; without a route, or for other layers, it is sdpa."""
    route, scaling = _route.get(), options.get("scaling")
    if route is not None:
        scaled = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        if (context := route(module, scaled, key, value)) is not None:
            return context, None
    attended: tuple[Tensor, Tensor | None] = ALL_ATTENTION_FUNCTIONS["sdpa"](
        module, query, key, value, mask, **options
    )
    return attended


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def route_by_hook(module: nn.Module) -> None:
    """Let a layer with an attention of its own ask the route.

    Args:
        module: its output is (context (R, T, M · d), ...), its queries are those of its part `query`. Its keys and
            values are taken from its cache.
    """

    def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: tuple[Any, ...]) -> Any:
        route = _route.get()
        if route is None:
            return None
        hidden = args[0] if args else kwargs["hidden_states"]
        query = module.query(hidden).unflatten(-1, (module.num_attention_heads, -1)).transpose(1, 2)
        given = next((value for value in (*args, *kwargs.values()) if isinstance(value, Cache)), None)
        cached = (
            None if given is None else getattr(given, "self_attention_cache", given).layers[module.layer_idx]
        )
        keys, values = (None, None) if cached is None else (cached.keys, cached.values)
        context = route(module, query * query.shape[-1] ** -0.5, keys, values)
        return None if context is None else (context.flatten(2), *output[1:])

    module.register_forward_hook(hook, with_kwargs=True)


def cached(module: Any, cache: Cache) -> dict[str, Any]:
    """Arguments by which a module uses a cache: releases of transformers differ in its name."""
    name = "cache" if "cache" in inspect.signature(module.forward).parameters else "past_key_values"
    return {name: cache, "use_cache": True}


class TransformersModel(ForeignModel):
    """A model of transformers. Families derive from one of the two classes below.

    Attributes:
        sites: the modules of the layers that attend to the image, in their order.
        transform: makes its pixels.
        prompt: the pieces that are fed before the first word is asked for; the last one is `start`.
        generation: the generation config that says how captions are searched.
    """

    transform_class: type[WholePhotoTransform] = ProcessorTransform
    processor_loader: str = "AutoImageProcessor"
    """The class of transformers that reads what the family needs as its processor."""

    def __init__(self, model: Any, processor: Any, prompt: Sequence[int], ends: Sequence[int]) -> None:
        super().__init__()
        self.whole = model.eval()
        self.transform = self.transform_class(processor)
        self.generation = model.generation_config
        self.prompt = tuple(prompt)
        self.start, self.ends = self.prompt[-1], tuple(ends)
        self.sites: list[nn.Module] = []

    def set_sites(self, sites: Sequence[nn.Module], heads: Sequence[int]) -> None:
        """The layers that attend to the image, and the number of heads of each."""
        if not sites:
            raise UserError(
                f"the attention of {type(self.whole).__name__} to the image cannot be seen: load it with "
                'attn_implementation="eager"'
            )
        self.sites = list(sites)
        self.heads = tuple(heads)

    def routed(self, attend: Attend, words: bool) -> Any:
        """Context in which the sites ask `attend`, with their keys and values if they attend to `words`, too."""
        numbers = {id(module): number for number, module in enumerate(self.sites)}

        def route(
            module: nn.Module, query: Tensor, key: Tensor | None, value: Tensor | None
        ) -> Tensor | None:
            if (layer := numbers.get(id(module))) is None:
                return None
            said = (key, value) if words else ()
            return attend(layer, query[:, :, 0], *said)[:, None]

        return routed(route)

    def image_grid(self, pixels: Tensor, patch: int | Sequence[int], tokens: int) -> Grid:
        """The grid (rows, cols) on which most of the tokens of an image stand; towers may merge patches by twos.

        Args:
            pixels: (B, 3, H, W).
            patch: side of a patch, in pixels.
            tokens: their number, class tokens and registers included.
        """
        down, across = (patch, patch) if isinstance(patch, int) else patch
        height, width = pixels.shape[-2:]
        for merged in (1, 2, 4, 8, 16, 32):
            rows, cols = height // (down * merged), width // (across * merged)
            if 0 <= tokens - rows * cols <= MOST_OTHERS:
                return rows, cols
        raise UserError(
            f"{type(self.whole).__name__} makes {tokens} tokens of {height}x{width} pixels, which fill no grid of its "
            f"patches of {down}x{across}: its maps cannot be drawn"
        )


MOST_OTHERS = 16
"""Class tokens and registers of an image; known towers have at most 9."""


def split_patches(tokens: Tensor, grid: Grid) -> ImageTokens:
    """Tokens (B, S + L, D) of one view, the S class tokens and registers first."""
    others = tokens.shape[1] - grid[0] * grid[1]
    return ImageTokens((tokens[:, others:],), (grid,), tokens[:, :others])


def layer_memories(
    layers: Sequence[Any], patches: Tensor, masks: Sequence[Tensor | None], first_view: int
) -> tuple[LayerMemory, ...]:
    """Memories of a cache's layers.

    Args:
        layers: with `keys` and `values` (B, M', P, d).
        patches: (L,) int64, which of the P are patches, in the order of the views.
        masks: see `ForeignModel.memory`.
        first_view: number of patches of the first view.
    """
    others = torch.ones(layers[0].keys.shape[2], dtype=torch.bool, device=patches.device)
    others = others.index_fill(0, patches, False).nonzero()[:, 0]
    mask = (
        None
        if all(of_view is None for of_view in masks)
        else torch.cat([m for m in masks if m is not None], 1)
    )
    return tuple(
        LayerMemory(
            layer.keys[:, :, patches], layer.values[:, :, patches], mask,
            layer.keys[:, :, others], layer.values[:, :, others], first_view,
        )
        for layer in layers
    )  # fmt: skip


class CrossAttentionModel(TransformersModel):
    """A decoder whose layers attend to image tokens by cross-attention.

    Args:
        model, processor: the whole model and its image processor.
        decoder: its text model, called with `input_ids`, `encoder_hidden_states` and a cache.
        encoder_size: length of `encoder_hidden_states`.
        prompt, ends: see `TransformersModel` and `ForeignModel`.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        decoder: Any,
        encoder_size: int,
        prompt: Sequence[int],
        ends: Sequence[int],
    ) -> None:
        super().__init__(model, processor, prompt, ends)
        self.decoder = decoder
        self.region_size = encoder_size

    def find_sites(self) -> None:
        """Find the cross-attention of a decoder that uses the attention interface, by running it on two tokens."""
        self.decoder.set_attn_implementation(NAME)
        found: dict[nn.Module, int] = {}

        def route(module: nn.Module, query: Tensor, key: Tensor | None, value: Tensor | None) -> None:
            if key is not None and key.shape[2] == 2:
                found[module] = query.shape[1]

        with torch.no_grad(), routed(route):
            weight = next(self.decoder.parameters())
            image = weight.new_zeros(1, 2, self.region_size)
            start = torch.tensor([[self.start]], device=weight.device)
            self.decoder(input_ids=start, encoder_hidden_states=image, use_cache=False)
        self.set_sites(list(found), list(found.values()))

    def memory(self, tokens: ImageTokens, masks: Sequence[Tensor | None]) -> Memory:
        hidden = torch.cat((tokens.others, *tokens.patches), 1)
        fed = torch.tensor(self.prompt[:-1] or self.prompt, device=hidden.device).expand(len(hidden), -1)
        cache: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self._run(fed, hidden, cache)
        patches = torch.arange(tokens.others.shape[1], hidden.shape[1], device=hidden.device)
        layers = layer_memories(
            cache.cross_attention_cache.layers, patches, masks, tokens.patches[0].shape[1]
        )
        kept = len(self.prompt) - 1
        past = tuple(
            (layer.keys[:, :, :kept], layer.values[:, :, :kept])
            for layer in cache.self_attention_cache.layers
        )
        return Memory(layers, past)

    def step(self, pieces: Tensor, past: TensorTree, attend: Attend) -> tuple[Tensor, TensorTree]:
        none = past[0][0].new_zeros(len(pieces), *past[0][0].shape[1:2], 1, past[0][0].shape[3])
        cache: Any = EncoderDecoderCache(DynamicCache(past), DynamicCache([(none, none)] * len(past)))
        with self.routed(attend, words=False):
            image = none.new_zeros(len(pieces), 1, self.region_size)  # the memory is read instead
            logits = self._run(pieces[:, None], image, cache)
        said = cache.self_attention_cache.layers
        return logits[:, -1], tuple((layer.keys, layer.values) for layer in said)

    def _run(self, pieces: Tensor, image: Tensor, cache: EncoderDecoderCache) -> Tensor:
        output = self.decoder(input_ids=pieces, encoder_hidden_states=image, **cached(self.decoder, cache))
        logits: Tensor = output.logits
        return logits
