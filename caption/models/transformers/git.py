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
        super().__init__(model, processor, tokenizer, prompt, ends)
        self.region_size = model.config.vision_config.hidden_size
        self.tower = model.git.image_encoder
        self.hook_sites([layer.attention.self for layer in model.git.encoder.layer])

    def prefix(self, tokens: ImageTokens, mask: Tensor | None) -> Prefix:
        class_tokens, patches = tokens.class_tokens.shape[1], tokens.patches[0]
        image = self.whole.git.visual_projection(torch.cat((tokens.class_tokens, patches), 1))
        pieces = torch.tensor(self.prompt[:-1], dtype=torch.long, device=image.device).expand(len(image), -1)
        hidden = torch.cat((image, self.whole.git.embeddings(pieces)), 1)
        # Image tokens attend to each other in both directions, words to the image and to earlier words.
        places = torch.arange(hidden.shape[1], device=hidden.device)
        visible = (places < image.shape[1]) | (places <= places[:, None])
        if mask is not None:
            visible = visible.expand(len(image), -1, -1).clone()
            visible[:, :, class_tokens : image.shape[1]] &= mask[:, None]
        added = torch.zeros_like(visible, dtype=hidden.dtype).masked_fill(
            ~visible, torch.finfo(hidden.dtype).min
        )
        cache = DynamicCache()
        attention_mask = added.view(-1, 1, *visible.shape[-2:])
        self.whole.git.encoder(hidden, attention_mask=attention_mask, cache=cache, use_cache=True)
        return Prefix(
            cache, places[class_tokens : image.shape[1]], places.new_full((1,), pieces.shape[1]), pieces
        )
