"""Families whose text model attends to image tokens by cross-attention: ViT-GPT2 and its like, and BLIP."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from caption.foreign.families import end_pieces
from caption.foreign.model import ImageTokens
from caption.foreign.transformers_model import CrossAttentionModel, route_by_hook, split_patches


class VisionEncoderDecoder(CrossAttentionModel):
    """`VisionEncoderDecoderModel`: a tower of patches, such as ViT, DeiT, DINOv2 or Swin, and a decoder with
    cross-attention, such as GPT-2 or BERT."""

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        starts = (
            model.generation_config.decoder_start_token_id, model.config.decoder_start_token_id,
            tokenizer.bos_token_id, tokenizer.cls_token_id,
        )  # fmt: skip
        prompt = [next(piece for piece in starts if piece is not None)]
        ends = end_pieces(model, tokenizer.eos_token_id) or end_pieces(model, tokenizer.sep_token_id)
        size = (
            model.decoder.config.hidden_size
            if hasattr(model, "enc_to_dec_proj")
            else model.encoder.config.hidden_size
        )
        super().__init__(model, processor, model.decoder, size, prompt, ends)
        self.tower = model.encoder
        self.find_sites()

    def image_tokens(self, pixels: Tensor) -> ImageTokens:
        tokens = self.tower(pixel_values=pixels).last_hidden_state
        grid = self.image_grid(pixels, self.tower.config.patch_size, tokens.shape[1])
        if hasattr(self.whole, "enc_to_dec_proj"):
            tokens = self.whole.enc_to_dec_proj(tokens)
        return split_patches(tokens, grid)


class Blip(CrossAttentionModel):
    """`BlipForConditionalGeneration`: a ViT, and BERT with cross-attention."""

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        text = model.config.text_config
        size = model.config.vision_config.hidden_size
        super().__init__(model, processor, model.text_decoder, size, [text.bos_token_id], [text.sep_token_id])
        self.tower = model.vision_model
        self.generation = self.decoder.generation_config  # which `generate` of BLIP uses
        layers = self.decoder.bert.encoder.layer
        sites = [layer.crossattention.self for layer in layers]
        for site in sites:
            route_by_hook(site)
        self.set_sites(sites, [site.num_attention_heads for site in sites])

    def image_tokens(self, pixels: Tensor) -> ImageTokens:
        tokens = self.tower(pixel_values=pixels)[0]
        grid = self.image_grid(pixels, self.whole.config.vision_config.patch_size, tokens.shape[1])
        return split_patches(tokens, grid)
