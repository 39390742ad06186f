"""Florence-2, whose encoder reads image tokens and the question, and whose decoder attends to what it has read."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers.cache_utils import EncoderDecoderCache

from caption.core.box import shares_of
from caption.core.errors import UserError
from caption.encoders.grid_boxes import grid_boxes
from caption.models.transformers.families import check_processor, end_pieces
from caption.models.transformers.model import ImageTokens
from caption.models.transformers.transformers_model import CrossAttentionModel


class Florence2(CrossAttentionModel):
    """`Florence2ForConditionalGeneration`: DaViT and BART.

    Maps are the decoder's attention to the encoder's tokens in the places of image tokens: the mean of all, which has
    no place in the photo, then those of the grid. The convolutions of DaViT pad by less than their kernels are wide, so
    its grid begins before the photo.
    """

    processor_loader = "AutoProcessor"
    is_probed = True
    asks_decoder = False
    lit = 0.2  # tokens read twice the width of their cells

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        check_processor(model, processor)
        text = model.config.text_config
        super().__init__(
            model, processor, tokenizer, [text.decoder_start_token_id], end_pieces(model), text.d_model
        )
        self.question = "<CAPTION>"
        tower = model.base_model.vision_tower
        self.mixing = tuple({type(block) for stage in tower.blocks for block in stage})
        self.decoder = model.base_model.language_model.decoder
        self.find_sites()
        pixels = next(model.parameters()).new_zeros(1, 3, self.transform.height, self.transform.width)
        (box,) = grid_boxes(lambda images: tower(images).last_hidden_state, pixels)
        self.covered = shares_of(box, (0, 0, self.transform.width, self.transform.height))

    def prompt_of(self, question: str) -> tuple[int, ...]:
        return self.prompt  # the encoder reads the question

    def image_tokens(self, pixels: Tensor) -> ImageTokens:
        output = self.whole.base_model.get_image_features(pixel_values=pixels, return_dict=True)
        rows, cols = output.last_hidden_state.shape[-2:]
        mean, patches = output.pooler_output.split((1, rows * cols), 1)
        return ImageTokens((patches,), ((rows, cols),), mean)

    def encoded(self, tokens: ImageTokens, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        features = torch.cat((tokens.class_tokens, *tokens.patches), 1)
        asked: Tensor = self.asked(Image.new("RGB", (8, 8)))["input_ids"]
        if asked.shape[1] > self.longest_text:
            raise UserError(
                f"photo and question are {asked.shape[1]} pieces, and the encoder reads {self.longest_text:.0f}: "
                "ask less"
            )
        pieces = asked.to(features.device).expand(len(features), -1)
        places = (pieces[0] == self.whole.config.image_token_id).nonzero()[:, 0]
        embedded = self.whole.get_input_embeddings()(pieces).index_copy(1, places, features)
        patches = places[tokens.class_tokens.shape[1] :]
        visible = None if mask is None else torch.ones_like(pieces).index_copy(1, patches, mask.long())
        read = self.whole.get_encoder()(inputs_embeds=embedded, attention_mask=visible)
        return read.last_hidden_state, patches

    def _run(self, pieces: Tensor, image: Tensor, cache: EncoderDecoderCache) -> Tensor:
        output = self.decoder(input_ids=pieces, encoder_hidden_states=image, cache=cache, use_cache=True)
        logits: Tensor = self.whole.lm_head(output.last_hidden_state)
        return logits
