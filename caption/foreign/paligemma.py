"""PaliGemma, whose text model reads image tokens and a prompt in both directions, then words."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from caption.foreign.model import ImageTokens
from caption.foreign.prefix import PromptModel
from caption.foreign.transformers_model import split_patches


class PaliGemma(PromptModel):
    """`PaliGemmaForConditionalGeneration`: SigLIP and Gemma."""

    def __init__(self, model: Any, processor: Any, tokenizer: Any, question: str = "caption en") -> None:
        super().__init__(model, processor, tokenizer, model.model.language_model, question)

    def image_tokens(self, pixels: Tensor) -> ImageTokens:
        tokens = self.whole.get_image_features(pixel_values=pixels).pooler_output
        grid = self.image_grid(pixels, self.whole.config.vision_config.patch_size, tokens.shape[1])
        return split_patches(tokens, grid)

    def positions(self, inputs: Any) -> Tensor:
        return super().positions(inputs) + 1  # the model counts from 1

    def options(self, pieces: Tensor) -> dict[str, Tensor]:
        return {"token_type_ids": torch.zeros_like(pieces)}  # all of the prompt is read in both directions
