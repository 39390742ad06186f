"""The supported architectures of transformers, by their names in `config.json`.

A family is a class with the arguments `(model, processor, tokenizer)`: the model, its image processor and its
tokenizer, all of transformers. Its attribute `transform` is the `ProcessorTransform` that fits the architecture.
"""

from __future__ import annotations

from typing import Any

from caption.core.errors import UserError

FAMILIES = {
    "VisionEncoderDecoderModel": "caption.models.transformers.cross_attention:VisionEncoderDecoder",
    "BlipForConditionalGeneration": "caption.models.transformers.cross_attention:Blip",
    "Blip2ForConditionalGeneration": "caption.models.transformers.q_former:Blip2",
    "InstructBlipForConditionalGeneration": "caption.models.transformers.q_former:Blip2",
    "Kosmos2ForConditionalGeneration": "caption.models.transformers.kosmos2:Kosmos2",
    "Pix2StructForConditionalGeneration": "caption.models.transformers.cross_attention:Pix2Struct",
    "Florence2ForConditionalGeneration": "caption.models.transformers.florence2:Florence2",
    "MllamaForConditionalGeneration": "caption.models.transformers.mllama:Mllama",
    "GitForCausalLM": "caption.models.transformers.git:Git",
}
"""Module and class of each architecture with a class of its own."""
IMAGE_TEXT = "caption.models.transformers.image_text:ImageTextModel"
"""The class of the others that transformers lists as models for images and text, if they keep to its contract."""


def family_of(architecture: str) -> str | None:
    """Module and class for an architecture of transformers; None = it is not supported."""
    from transformers.models.auto.modeling_auto import (
        MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as IMAGES_AND_TEXT,
    )

    generic = IMAGE_TEXT if architecture in IMAGES_AND_TEXT.values() else None
    return FAMILIES.get(architecture, generic)


def check_processor(model: Any, processor: Any) -> None:
    """Raise a UserError if this is an image processor alone, which writes no prompt for the model."""
    if not hasattr(processor, "image_processor"):
        raise UserError(
            f"{type(model).__name__} needs a prompt, which {type(processor).__name__} does not write: give the "
            "whole processor, as AutoProcessor of transformers reads it"
        )


def end_pieces(model: Any, *more: int | None) -> tuple[int, ...]:
    """The pieces that end a caption: those of the model's generation config, and those of `more` that are not None."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = configured if isinstance(configured, (list, tuple)) else [configured]
    return tuple(dict.fromkeys(piece for piece in (*listed, *more) if piece is not None))
