"""Families whose text model attends to image tokens by cross-attention: ViT-GPT2 and others, BLIP, Pix2Struct."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from caption.core.errors import UserError
from caption.data.photos import FittedPhoto, ImageTransform, Photo, open_image
from caption.models.transformers.encoder import cannot_be_saved
from caption.models.transformers.families import end_pieces
from caption.models.transformers.model import ImageTokens
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


class PatchesTransform(ImageTransform):
    """The whole photo as patches (rows, cols, 2 + p), as many as keep its proportions: row, column, pixels.

    Args:
        processor: a `Pix2StructImageProcessor`.
    """

    processor: Any

    def __init__(self, processor: Any) -> None:
        if processor.is_vqa:
            raise UserError(
                "this Pix2Struct writes the question into the photo, so its maps would not lie on the photo: take one "
                "that writes captions, such as google/pix2struct-textcaps-base"
            )
        super().__init__(1, "squash")
        object.__setattr__(self, "processor", processor)  # a frozen dataclass

    def read(self, photo: Photo) -> FittedPhoto:
        image = open_image(photo)
        patches = self.processor(images=image, return_tensors="pt")["flattened_patches"][0]
        rows = int(patches[:, 0].max())
        patches = patches[patches[:, 0] > 0].unflatten(0, (rows, -1))  # the others are padding
        return FittedPhoto(patches, image.size, self.box(*image.size), photo)

    def to_dict(self) -> dict[str, Any]:
        raise cannot_be_saved()


class Pix2Struct(CrossAttentionModel):
    """`Pix2StructForConditionalGeneration`: a ViT of a photo in its own proportions, and T5's decoder."""

    def __init__(self, model: Any, processor: Any, tokenizer: Any) -> None:
        images = getattr(processor, "image_processor", processor)
        start, size = model.config.text_config.decoder_start_token_id, model.config.vision_config.hidden_size
        super().__init__(model, images, tokenizer, [start], end_pieces(model), size)
        self.tower = model.encoder
        self.find_sites()

    def make_transform(self, processor: Any) -> ImageTransform:
        return PatchesTransform(processor)

    def image_tokens(self, pixels: Tensor) -> ImageTokens:
        patches = pixels.flatten(1, 2)
        all_patches = torch.ones_like(patches[..., 0])
        tokens = self.tower(flattened_patches=patches, attention_mask=all_patches).last_hidden_state
        rows, cols = pixels.shape[1:3]
        return ImageTokens((tokens,), ((rows, cols),), tokens[:, :0])
