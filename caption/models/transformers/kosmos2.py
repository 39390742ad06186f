"""Kosmos-2, whose language model reads a photo through latent queries, in their places among the pieces of a prompt."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from caption.attention.maps import hide_masked, single_precision
from caption.core.tensor_tree import TensorTree
from caption.models.transformers.families import check_processor, end_pieces
from caption.models.transformers.model import Attend, ImageTokens
from caption.models.transformers.prefix import Prefix, PrefixModel
from caption.models.transformers.transformers_model import NAME, routed


class Kosmos2(PrefixModel):
    """`Kosmos2ForConditionalGeneration`: a ViT, one layer in which latent queries attend to its tokens and to
    themselves, and a language model, which reads the results, then the text that the caption continues.

    Maps lie on the patches of the ViT, see `PatchAttention`: what a query token has read is the mean of that layer's
    heads, which nothing bypasses.
    """

    processor_loader = "AutoProcessor"
    is_probed = True

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        check_processor(model, processor)
        text = model.text_model  # whose configuration `generate` uses
        ends = end_pieces(text) or end_pieces(model, tokenizer.eos_token_id)
        super().__init__(model, processor, tokenizer, [0], ends)
        self.question, self.generation = "An image of", text.generation_config
        self.padding = text.config.pad_token_id  # its position, too; other pieces have positions after it
        self.tower, self.region_size = model.vision_model, model.config.vision_config.hidden_size
        text.set_attn_implementation(NAME)
        sites = [layer.self_attn for layer in text.model.layers]
        self.set_sites(sites, [text.config.attention_heads] * len(sites))

    @property
    def language_model(self) -> Any:
        return self.whole.text_model

    @property
    def longest_text(self) -> float:
        config = self.whole.config
        return float(config.text_config.max_position_embeddings - config.latent_query_num)

    def asked(self, photo: Image.Image, question: str | None = None) -> Any:
        text, queries = self.question if question is None else question, self.whole.config.latent_query_num
        return self.processor(images=photo, text=text, num_image_tokens=queries, return_tensors="pt")

    def prompt_of(self, question: str) -> tuple[int, ...]:
        """The piece that ends the image, and the text."""
        asked = self.asked(BLANK, question)
        first = int(asked["image_embeds_position_mask"].nonzero().max()) + 1
        return tuple(asked["input_ids"][0, first:].tolist())

    def features(self, pixels: Tensor) -> Tensor:
        tokens = self.tower.model.post_layernorm(super().features(pixels))
        return nn.functional.normalize(tokens, dim=-1)

    def prefix(self, tokens: ImageTokens, mask: Tensor | None) -> Prefix:
        (patches,), others = tokens.patches, tokens.class_tokens
        read = slice(others.shape[1], others.shape[1] + patches.shape[1])
        shares = patches

        def route(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> Tensor:
            nonlocal shares
            scores = single_precision(query @ key.mT)
            visible = scores.new_ones(len(scores), scores.shape[-1], dtype=torch.bool)
            visible[:, read] = True if mask is None else mask
            weights = hide_masked(scores, visible).softmax(-1)
            of_patches = weights.mean(1)[..., read]
            shares = torch.cat((of_patches, 1 - of_patches.sum(-1, keepdim=True)), -1)
            return (weights.to(value.dtype) @ value).transpose(1, 2)

        with routed(route):
            queries, _ = self.whole.image_to_text_projection(torch.cat((others, patches), 1))
        asked = self.asked(BLANK).to(patches.device)
        places = asked["image_embeds_position_mask"][0].nonzero()[:, 0]
        pieces, is_query = (
            asked[name][:, : int(places[-1]) + len(self.prompt)].expand(len(patches), -1)
            for name in ("input_ids", "image_embeds_position_mask")
        )
        cache = DynamicCache()
        self.language_model(
            input_ids=pieces,
            image_embeds=queries,
            image_embeds_position_mask=is_query,
            cache=cache,
            use_cache=True,
        )
        return Prefix(
            cache, places, places.new_full((1,), pieces.shape[1] + self.padding + 1), pieces, shares
        )

    def step(self, pieces: Tensor, past: TensorTree, attend: Attend) -> tuple[Tensor, TensorTree]:
        positions, words = past
        own = positions.masked_fill((pieces == self.padding)[:, None], self.padding)
        logits, (_, extended) = super().step(pieces, (own, words), attend)
        return logits, (positions + 1, extended)


BLANK = Image.new("RGB", (64, 48))
"""A photo for prompts, which are the same for all photos."""
