"""Models of transformers: their text models run step by step, and this package computes their attention to the image.

Only public extension points are used. A registered attention function gets queries, keys and values of every layer that
uses transformers' attention interface. Layers with attention code of their own (BLIP, GIT) get a forward hook, which
replaces their output. Outside of a step of `ForeignDecoder`, neither changes the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from caption.core.errors import UserError, first_few
from caption.core.tensor_tree import TensorTree
from caption.data.photos import ImageTransform
from caption.models.transformers.attention import HeadQuery, LayerMemory, PatchAttention, PatchMaps
from caption.models.transformers.model import Attend, ForeignModel, ImageTokens, Memory
from caption.models.transformers.preprocessing import ProcessorTransform

NAME = "caption"
"""The attention function's name among transformers' implementations."""

Route = Callable[..., Tensor | None]
"""A layer's module, its queries (R, M, T, d), scaled, keys and values (R, M', T', d) or None, the number of tokens that
it reads, the newest ones, or None, and its mask -> context (R, T, M, d); None = the layer computes its own."""

_route: ContextVar[Route | None] = ContextVar("route", default=None)


@contextmanager
def routed(route: Route) -> Iterator[None]:
    """A context in which attention layers of this thread call `route` first."""
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
        if (context := route(module, scaled, key, value, options.get("sliding_window"), mask)) is not None:
            return context, None
    attended: tuple[Tensor, Tensor | None] = ALL_ATTENTION_FUNCTIONS["sdpa"](
        module, query, key, value, mask, **options
    )
    return attended


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, ALL_MASK_ATTENTION_FUNCTIONS["sdpa"])


def route_by_hook(module: nn.Module) -> None:
    """Let a layer with attention code of its own call the route.

    Args:
        module: its output is (context (R, T, M · d), ...); its submodule `query` computes its queries. Its keys and
            values are taken from its cache, if that is a cache of words.
    """

    def hook(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: tuple[Any, ...]) -> Any:
        route = _route.get()
        if route is None:
            return None
        hidden = args[0] if args else kwargs["hidden_states"]
        query = module.query(hidden).unflatten(-1, (module.num_attention_heads, -1)).transpose(1, 2)
        cached = [value for value in (*args, *kwargs.values()) if isinstance(value, DynamicCache)]
        layers: list[Any] = [cache.layers[module.layer_idx] for cache in cached]
        keys, values = (layers[0].keys, layers[0].values) if layers else (None, None)
        context = route(module, query * query.shape[-1] ** -0.5, keys, values)
        return None if context is None else (context.flatten(2), *output[1:])

    module.register_forward_hook(hook, with_kwargs=True)


class QuestionMaps(NamedTuple):
    """How the N pieces of a question read an image."""

    pieces: Tensor
    """(N,) int64."""
    log_probs: Tensor
    """(N,) log p of each, given those before it."""
    layers: list[PatchMaps]
    """The weights of each layer at each piece, as those of N captions of one image."""


class TransformersModel(ForeignModel):
    """A model of transformers. Families derive from one of the two classes below.

    Attributes:
        tower: its vision tower.
        sites: the modules of the layers that attend to the image, in their order.
        transform: makes its pixels.
        prompt: the pieces that are fed before the first word; the last one is `start`.
        generation: the generation config, which configures the search.
    """

    tower: Any
    transform: ImageTransform
    processor_loader: str = "AutoImageProcessor"
    """The class of transformers that loads the family's processor."""
    is_probed: bool = False
    """Whether the places of its image tokens are found, not declared by a class, and must be checked."""
    lit: float = 0.6
    """The share of a cell's side that the probe lights; resizing spreads light."""
    mixing: tuple[type[nn.Module], ...] = ()
    """Classes of its tower's layers that mix tokens, beside transformers' `GradientCheckpointingLayer`."""

    def __init__(
        self, model: Any, processor: Any, tokenizer: Any, prompt: Sequence[int], ends: Sequence[int]
    ) -> None:
        super().__init__()
        self.whole, self.processor, self.tokenizer = model, processor, tokenizer
        self._question = ""
        self.transform = self.make_transform(processor)
        self.generation = model.generation_config
        self.prompt = tuple(prompt)
        self.check_pieces(prompt)
        self.check_pieces(ends)
        self.start, self.ends = self.prompt[-1], tuple(ends)

    def make_transform(self, processor: Any) -> ImageTransform:
        """The transform that makes the model's pixels."""
        return ProcessorTransform(getattr(processor, "image_processor", processor))

    def asked(self, photo: Image.Image) -> Any:
        """The processor's output for the question about a photo."""
        return self.processor(images=photo, text=self.question, return_tensors="pt")

    @property
    def question(self) -> str:
        """The text that captions continue, or that they answer; may be set. It is not part of the captions."""
        return self._question

    @question.setter
    def question(self, question: str) -> None:
        pieces, longest = self.prompt_of(question), self.longest_text
        self.check_pieces(pieces)
        if len(self.tokenizer(question)["input_ids"]) >= longest:
            raise UserError(
                f"the model reads at most {longest:.0f} pieces of text, and the question has more: ask less"
            )
        self._question, self.prompt, self.start = question, pieces, pieces[-1]

    @property
    def longest_text(self) -> float:
        """Number of pieces for which the model has learned positions; infinite without such positions."""
        tables = [
            part.num_embeddings - getattr(part, "offset", 0)  # OPT's table begins with unused rows
            for name, part in self.whole.named_modules()
            if isinstance(part, nn.Embedding) and ("position" in name or name.endswith("wpe"))
            if "vision" not in name and "image" not in name  # Florence-2 has positions on its grid, too
        ]
        return min(tables, default=math.inf)

    def prompt_of(self, question: str) -> tuple[int, ...]:
        """The pieces that are fed before the first word."""
        return (self.prompt[0], *self.tokenizer(question, add_special_tokens=False)["input_ids"])

    def question_maps(self, tokens: ImageTokens) -> QuestionMaps | None:
        """How the pieces of the question read the image, or None if a step reads each of them as one of a caption.

        Args:
            tokens: of one image.
        """
        return None

    @contextmanager
    def unasked(self) -> Iterator[tuple[int, ...]]:
        """A context in which the prompt is its first piece alone; it gives the whole prompt."""
        prompt = self.prompt
        self.prompt, self.start = prompt[:1], prompt[0]
        try:
            yield prompt
        finally:
            self.prompt, self.start = prompt, prompt[-1]

    def check_pieces(self, pieces: Sequence[Any]) -> None:
        """Raise a UserError if the model has no such pieces."""
        count = self.whole.config.get_text_config(decoder=True).vocab_size
        unknown = [piece for piece in pieces if type(piece) is not int or not 0 <= piece < count]
        if unknown or not pieces:
            raise UserError(
                f"{type(self.whole).__name__} has pieces 0 to {count - 1}, and its captions begin or end with "
                f"{first_few(map(repr, unknown)) or 'none'}: check bos_token_id, eos_token_id and "
                "decoder_start_token_id in its generation_config.json, and that its tokenizer belongs to it"
            )

    def set_sites(self, sites: Sequence[nn.Module], heads: Sequence[int]) -> None:
        """The layers that attend to the image, and the number of heads of each."""
        if not sites:
            raise UserError(
                f"the attention of {type(self.whole).__name__} to the image cannot be seen, because its layers do not "
                "use the attention interface of transformers: take a model whose decoder does, such as GPT-2, BERT or "
                "BART"
            )
        self.sites = list(sites)
        self.heads = tuple(heads)

    @property
    def layer_numbers(self) -> dict[int, int]:
        """The number of each site's layer, by the `id` of its module."""
        return {id(module): number for number, module in enumerate(self.sites)}

    def routed(self, attend: Attend, words: bool) -> Any:
        """A context in which the sites call `attend`, with their keys and values if they attend to `words`, too."""
        numbers = self.layer_numbers

        def route(
            module: nn.Module,
            query: Tensor,
            key: Tensor | None,
            value: Tensor | None,
            window: int | None = None,
            mask: Tensor | None = None,
        ) -> Tensor | None:
            if (layer := numbers.get(id(module))) is None:
                return None
            of_words = (key, value, window) if words else ()
            return attend(layer, query[:, :, 0], *of_words)[:, None]

        return routed(route)

    def hook_sites(self, sites: Sequence[Any]) -> None:
        """Set sites that have attention code of their own."""
        for site in sites:
            route_by_hook(site)
        self.set_sites(sites, [site.num_attention_heads for site in sites])

    def tower_input(self, pixels: Tensor) -> Tensor:
        """The argument of the vision tower for pixels of the transform."""
        return pixels

    def features(self, pixels: Tensor) -> Tensor:
        """(B, S + L, D) the image tokens of B photos, the S class tokens and registers first."""
        tokens: Tensor = self.tower(pixel_values=pixels).last_hidden_state
        return tokens

    def image_tokens(self, pixels: Tensor) -> ImageTokens:
        tokens, patch = self.features(pixels), self.tower.config.patch_size
        down, across = (patch, patch) if isinstance(patch, int) else patch
        height, width = pixels.shape[-2:]
        for merged in (1, 2, 4, 8, 16, 32):  # towers may merge patches by twos
            rows, cols = height // (down * merged), width // (across * merged)
            class_tokens = tokens.shape[1] - rows * cols
            # Swin pads odd numbers of patches: its additional tokens are not class tokens.
            is_cut = merged > 1 and bool(height % (down * merged) or width % (across * merged))
            if 0 <= class_tokens <= (0 if is_cut else MOST_CLASS_TOKENS):
                return ImageTokens((tokens[:, class_tokens:],), ((rows, cols),), tokens[:, :class_tokens])
        raise UserError(
            f"{type(self.whole).__name__} makes {tokens.shape[1]} tokens of {height}x{width} pixels, which fill no "
            f"grid of its patches of {down}x{across}: its maps cannot be drawn"
        )


MOST_CLASS_TOKENS = 16
"""Limit of the class tokens and registers of an image; known towers have at most 9."""


def layer_memories(
    layers: Sequence[Any], patches: Tensor, mask: Tensor | None, first_view: int, shares: Tensor | None = None
) -> tuple[LayerMemory, ...]:
    """Memories of a cache's layers.

    Args:
        layers: with `keys` and `values` (B, M', P, d).
        patches: (L,) int64, which of the P are patches, in the order of the views.
        mask: see `ForeignModel.memory`.
        first_view: number of patches of the first view.
        shares: see `LayerMemory`; if given, `patches` are query tokens, which have read no patch that `mask` hides.
    """
    mask = mask if shares is None else None
    is_patch = torch.zeros(layers[0].keys.shape[2], dtype=torch.bool, device=patches.device)
    elsewhere = (~is_patch.index_fill(0, patches, True)).nonzero()[:, 0]
    positions = [places.expand(len(layers[0].keys), -1) for places in (patches, elsewhere)]
    return tuple(
        LayerMemory(
            layer.keys[:, :, patches], layer.values[:, :, patches], mask,
            layer.keys[:, :, elsewhere], layer.values[:, :, elsewhere], first_view, positions[0], positions[1], shares,
        )
        for layer in layers
    )  # fmt: skip


class CrossAttentionModel(TransformersModel):
    """A decoder whose layers attend to image tokens by cross-attention.

    Args:
        model, processor, tokenizer: the whole model, its image processor and its tokenizer. Its decoder is called with
            `input_ids`, `encoder_hidden_states` and a cache.
        prompt, ends: see `TransformersModel` and `ForeignModel`.
        size: length of `encoder_hidden_states`.
    """

    def __init__(
        self,
        model: Any,
        processor: Any,
        tokenizer: Any,
        prompt: Sequence[int],
        ends: Sequence[int],
        size: int,
    ) -> None:
        super().__init__(model, processor, tokenizer, prompt, ends)
        self.decoder, self.region_size = model.get_decoder(), size

    def find_sites(self) -> None:
        """Find the cross-attention of a decoder that uses the attention interface, by running it on two tokens."""
        self.decoder.set_attn_implementation(NAME)
        heads: dict[nn.Module, int] = {}

        def route(module: nn.Module, query: Tensor, key: Tensor | None, *more: Any) -> None:
            if key is not None and key.shape[2] == 2:
                heads[module] = query.shape[1]

        with torch.no_grad(), routed(route):
            weight = next(self.decoder.parameters())
            image = weight.new_zeros(1, 2, self.region_size)
            start = torch.tensor([[self.start]], device=weight.device)
            self.decoder(input_ids=start, encoder_hidden_states=image, use_cache=False)
        self.set_sites(list(heads), list(heads.values()))

    def encoded(self, tokens: ImageTokens, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """(B, P, size) what the decoder attends to, and (L,) int64, which of it are patches, for `memory`."""
        hidden = torch.cat((tokens.class_tokens, *tokens.patches), 1)
        return hidden, torch.arange(tokens.class_tokens.shape[1], hidden.shape[1], device=hidden.device)

    def memory(self, tokens: ImageTokens, mask: Tensor | None) -> Memory:
        hidden, patches = self.encoded(tokens, mask)
        prompt = torch.tensor(self.prompt, device=hidden.device).expand(len(hidden), -1)
        cache: Any = EncoderDecoderCache(DynamicCache(), DynamicCache())
        self._run(prompt[:, :1], hidden, cache)
        layers = layer_memories(cache.cross_attention_cache.layers, patches, mask, tokens.patches[0].shape[1])

        def read(layer: int, query: Tensor) -> Tensor:
            """Attention with the mask, which BLIP's own does not heed."""
            image = layers[layer]
            heads = HeadQuery.of(query[:, None], image.other_keys[:, None], image.other_values[:, None])
            return PatchAttention()(heads, image).context.view_as(query)

        past: TensorTree = tuple(
            (layer.keys[:, :, :0], layer.values[:, :, :0]) for layer in cache.self_attention_cache.layers
        )
        for pieces in prompt[:, :-1].unbind(1):
            past = self.step(pieces, past, read)[1]
        return Memory(layers, past, prompt[:, :-1])

    def step(self, pieces: Tensor, past: TensorTree, attend: Attend) -> tuple[Tensor, TensorTree]:
        blank = past[0][0].new_zeros(len(pieces), *past[0][0].shape[1:2], 1, past[0][0].shape[3])
        cache: Any = EncoderDecoderCache(DynamicCache(past), DynamicCache([(blank, blank)] * len(past)))
        with self.routed(attend, words=False):
            image = blank.new_zeros(len(pieces), 1, self.region_size)  # the memory is read instead
            logits = self._run(pieces[:, None], image, cache)
        layers = cache.self_attention_cache.layers
        return logits[:, -1], tuple((layer.keys, layer.values) for layer in layers)

    def _run(self, pieces: Tensor, image: Tensor, cache: EncoderDecoderCache) -> Tensor:
        output = self.decoder(input_ids=pieces, encoder_hidden_states=image, cache=cache, use_cache=True)
        logits: Tensor = output.logits
        return logits
