"""Families whose text model attends to image tokens by cross-attention: ViT-GPT2 and similar models, and BLIP."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from caption.models.transformers.families import end_pieces
from caption.models.transformers.transformers_model import CrossAttentionModel


class VisionEncoderDecoder(CrossAttentionModel):
    """`VisionEncoderDecoderModel`: a tower of patches, such as ViT, DeiT, DINOv2 or Swin, and a decoder with
    cross-attention, such as GPT-2 or BERT."""

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        starts = (
            model.generation_config.decoder_start_token_id, model.config.decoder_start_token_id,
            tokenizer.bos_token_id, tokenizer.cls_token_id,
        )  # fmt: skip
        prompt = [next(piece for piece in starts if piece is not None)]
        ends = end_pieces(model) or end_pieces(model, tokenizer.eos_token_id)
        ends = ends or end_pieces(model, tokenizer.sep_token_id)
        projection = getattr(model, "enc_to_dec_proj", nn.Identity())
        size = getattr(projection, "out_features", model.encoder.config.hidden_size)
        super().__init__(model, processor, tokenizer, prompt, ends, size)
        self.tower, self.projection = model.encoder, projection
        self.find_sites()

    def features(self, pixels: Tensor) -> Tensor:
        tokens: Tensor = self.projection(super().features(pixels))
        return tokens


class Blip(CrossAttentionModel):
    """`BlipForConditionalGeneration`: a ViT, and BERT with cross-attention."""

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        text = model.config.text_config
        size = model.config.vision_config.hidden_size
        super().__init__(model, processor, tokenizer, [text.bos_token_id], [text.sep_token_id], size)
        self.tower = model.vision_model
        self.generation = self.decoder.generation_config  # the one that BLIP's `generate` uses
        self.hook_sites([layer.crossattention.self for layer in self.decoder.bert.encoder.layer])
