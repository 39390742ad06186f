"""The supported architectures of transformers, by their names in `config.json`.

A family is a class with the arguments `(model, processor, tokenizer)`: the model, its image processor and its
tokenizer, all of transformers. Its attribute `transform` is the `ProcessorTransform` that fits the architecture.
"""

from __future__ import annotations

from typing import Any

FAMILIES = {
    "VisionEncoderDecoderModel": "caption.models.transformers.cross_attention:VisionEncoderDecoder",
    "BlipForConditionalGeneration": "caption.models.transformers.cross_attention:Blip",
    "GitForCausalLM": "caption.models.transformers.git:Git",
    "PaliGemmaForConditionalGeneration": "caption.models.transformers.paligemma:PaliGemma",
    "Idefics3ForConditionalGeneration": "caption.models.transformers.idefics3:Idefics3",
    "SmolVLMForConditionalGeneration": "caption.models.transformers.idefics3:Idefics3",
    "Qwen2VLForConditionalGeneration": "caption.models.transformers.qwen2_vl:Qwen2VL",
    "Qwen2_5_VLForConditionalGeneration": "caption.models.transformers.qwen2_vl:Qwen2VL",
}
"""Module and class of each architecture."""


def end_pieces(model: Any, *more: int | None) -> tuple[int, ...]:
    """The pieces that end a caption: those of the model's generation config, and those of `more` that are not None."""
    configured = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    listed = configured if isinstance(configured, (list, tuple)) else [configured]
    return tuple(dict.fromkeys(piece for piece in (*listed, *more) if piece is not None))
