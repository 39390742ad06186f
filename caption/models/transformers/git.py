"""GIT, whose text model reads all tokens of an image before the words."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from caption.models.transformers.families import end_pieces
from caption.models.transformers.model import ImageTokens
from caption.models.transformers.prefix import Prefix, PrefixModel


class Git(PrefixModel):
    """`GitForCausalLM`: a CLIP tower, and BERT's layers over its tokens and the words."""

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        ends = end_pieces(model) or end_pieces(model, tokenizer.sep_token_id)
        start = (model.generation_config.bos_token_id, model.config.bos_token_id, tokenizer.cls_token_id)
        prompt = [next(piece for piece in start if piece is not None)]
        super().__init__(model, getattr(processor, "image_processor", processor), prompt, ends)
        self.region_size = model.config.vision_config.hidden_size
        self.tower = model.git.image_encoder
        self.hook_sites([layer.attention.self for layer in model.git.encoder.layer])

    def prefix(self, tokens: ImageTokens, mask: Tensor | None) -> Prefix:
        class_tokens, first = tokens.class_tokens.shape[1], tokens.patches[0]
        hidden = self.whole.git.visual_projection(torch.cat((tokens.class_tokens, first), 1))
        cache = DynamicCache()
        attention_mask = None
        if mask is not None:
            visible = torch.cat((mask.new_ones(len(hidden), class_tokens), mask), 1)
            attention_mask = torch.zeros_like(visible, dtype=hidden.dtype)
            attention_mask = attention_mask.masked_fill(~visible, torch.finfo(hidden.dtype).min)[
                :, None, None
            ]
        encoder = self.whole.git.encoder  # image tokens attend only to each other, in both directions
        encoder(hidden, attention_mask=attention_mask, cache=cache, use_cache=True)
        patches = torch.arange(class_tokens, hidden.shape[1], device=hidden.device)
        return Prefix(cache, patches, 0, patches.new_zeros(len(hidden), 0))
