"""PaliGemma, whose text model reads image tokens and a prompt in both directions, then words."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from caption.models.transformers.prefix import PromptModel


class PaliGemma(PromptModel):
    """`PaliGemmaForConditionalGeneration`: SigLIP and Gemma.

    The last piece of the prompt is fed in the first step. The other pieces and the patches, which read it, too, are not
    computed again: a map forced at the first step changes what that piece reads, not what was read from it.
    """

    first_question = "caption en"

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        super().__init__(model, processor, tokenizer)
        self.tower = model.model.vision_tower

    def features(self, pixels: Tensor) -> Tensor:
        tokens: Tensor = self.whole.get_image_features(pixel_values=pixels).pooler_output
        return tokens

    def positions(self, inputs: Any) -> Tensor:
        return super().positions(inputs) + 1  # the model counts from 1

    def options(self, pieces: Tensor) -> dict[str, Tensor]:
        return {"token_type_ids": torch.zeros_like(pieces)}  # the whole prompt is read in both directions
