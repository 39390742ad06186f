"""Tiny random models for images and text of transformers, whose adapter is the generic one."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from helpers.tiny_foreign import Tiny, byte_level_tokenizer
from transformers import PreTrainedTokenizerFast

TEXT: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "initializer_range": 0.5, "pad_token_id": 0, "bos_token_id": 0,
    "eos_token_id": 0,
}  # fmt: skip
IMAGE_TOWER: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "image_size": 16, "patch_size": 4,
    "initializer_range": 0.5,
}  # fmt: skip
TEMPLATE = (
    "{% for message in messages %}User:{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %}{{ part['text'] }}{% endif %}{% endfor %}\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""A chat template; IMAGE stands for the image's place."""


def with_tokens(*tokens: str, **named: str) -> PreTrainedTokenizerFast:
    """A tokenizer with more tokens; `named` are attributes of it, such as image_token."""
    tokenizer = byte_level_tokenizer()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, bos_token=tokenizer.bos_token, eos_token=tokenizer.eos_token,
        pad_token=tokenizer.pad_token, extra_special_tokens=named,
    )  # fmt: skip
    tokenizer.add_tokens(list(tokens), special_tokens=True)
    return tokenizer


def ready(model: Any, layers: int = 1) -> Any:
    """Without layers, a tower is asked for features of its first one, which then mixes no patches."""
    for name, weight in model.named_parameters():
        if "mm_input_projection_weight" in name:  # of Gemma 3, whose image tokens would be zero
            torch.nn.init.normal_(weight)
        if not layers and "vision_tower" in name and "self_attn.out_proj" in name:
            torch.nn.init.zeros_(weight)
    model.generation_config.update(max_new_tokens=8, eos_token_id=0, pad_token_id=0)
    return model.eval()


def llava(layers: int = 1, wide: int = 1) -> Tiny:
    """4 x 4 patches of the centre of a photo; with `wide` times as many numbers in each token."""
    torch.manual_seed(0)
    text, tower = (
        {**part, "hidden_size": 16 * wide, "intermediate_size": 32 * wide} for part in (TEXT, IMAGE_TOWER)
    )
    tokenizer = with_tokens(image_token="<image>")
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=16)
    processor = transformers.LlavaProcessor(
        images, tokenizer, patch_size=4, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=TEMPLATE.replace("IMAGE", "<image>"),
    )  # fmt: skip
    config = transformers.LlavaConfig(
        vision_config={"model_type": "clip_vision_model", **tower, "num_hidden_layers": max(layers, 1)},
        text_config={"model_type": "llama", "vocab_size": len(tokenizer), **text, "head_dim": 8 * wide},
        image_token_id=processor.image_token_id, vision_feature_layer=-1,
    )  # fmt: skip
    return Tiny(ready(transformers.LlavaForConditionalGeneration(config), layers), processor, tokenizer)


def llava_next(layers: int = 1) -> Tiny:
    """A thumbnail of 4 x 4 patches, then tiles of as many, joined, cropped, with an end of each line."""
    torch.manual_seed(0)
    tokenizer = with_tokens(image_token="<image>")
    pinpoints = [[16, 32], [32, 16], [32, 32], [48, 16], [16, 48]]
    images = transformers.LlavaNextImageProcessor(
        size={"shortest_edge": 16}, crop_size=16, image_grid_pinpoints=pinpoints
    )
    processor = transformers.LlavaNextProcessor(
        images, tokenizer, patch_size=4, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=TEMPLATE.replace("IMAGE", "<image>"),
    )  # fmt: skip
    config = transformers.LlavaNextConfig(
        vision_config={"model_type": "clip_vision_model", **IMAGE_TOWER, "num_hidden_layers": max(layers, 1)},
        text_config={"model_type": "llama", "vocab_size": len(tokenizer), **TEXT},
        image_token_id=processor.image_token_id, vision_feature_layer=-1, image_grid_pinpoints=pinpoints,
    )  # fmt: skip
    return Tiny(ready(transformers.LlavaNextForConditionalGeneration(config), layers), processor, tokenizer)


def llava_onevision(layers: int = 1) -> Tiny:
    """As LLaVA-NeXT, with SigLIP, which has no class token."""
    torch.manual_seed(0)
    tokenizer = with_tokens(image_token="<image>", video_token="<video>")
    pinpoints = [[16, 32], [32, 16], [32, 32], [48, 16], [16, 48]]
    images = transformers.LlavaOnevisionImageProcessor(
        size={"height": 16, "width": 16}, image_grid_pinpoints=pinpoints
    )
    processor = transformers.LlavaOnevisionProcessor(
        images, tokenizer, transformers.LlavaOnevisionVideoProcessor(), num_image_tokens=16,
        vision_feature_select_strategy="full", chat_template=TEMPLATE.replace("IMAGE", "<image>"),
    )  # fmt: skip
    config = transformers.LlavaOnevisionConfig(
        vision_config={"model_type": "siglip_vision_model", **IMAGE_TOWER, "num_hidden_layers": max(layers, 1),
                       "vision_use_head": False},
        text_config={"model_type": "qwen2", "vocab_size": len(tokenizer), **TEXT},
        image_token_id=processor.image_token_id, video_token_id=tokenizer.video_token_id,
        image_grid_pinpoints=pinpoints,
    )  # fmt: skip
    return Tiny(
        ready(transformers.LlavaOnevisionForConditionalGeneration(config), layers), processor, tokenizer
    )


def internvl(layers: int = 1) -> Tiny:
    """2 x 2 tokens, of 2 x 2 shuffled patches each, for each tile of 16 x 16 pixels, and for a thumbnail, last."""
    torch.manual_seed(0)
    tokenizer = with_tokens(
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )
    images = transformers.GotOcr2ImageProcessor(
        size={"height": 16, "width": 16}, crop_to_patches=True, min_patches=1, max_patches=6
    )
    processor = transformers.InternVLProcessor(
        images, tokenizer, transformers.InternVLVideoProcessor(), image_seq_length=4,
        chat_template=TEMPLATE.replace("IMAGE", "<IMG_CONTEXT>"),
    )  # fmt: skip
    tower = {**IMAGE_TOWER, "image_size": (16, 16), "patch_size": (4, 4), "num_hidden_layers": layers}
    config = transformers.InternVLConfig(
        vision_config=tower, text_config={"model_type": "qwen2", "vocab_size": len(tokenizer), **TEXT},
        image_token_id=processor.image_token_id, image_seq_length=4,
    )  # fmt: skip
    return Tiny(ready(transformers.InternVLForConditionalGeneration(config)), processor, tokenizer)


def gemma3(layers: int = 1, window: int = 1024) -> Tiny:
    """4 x 4 patches pooled to 2 x 2 tokens, which attend to each other in both directions."""
    torch.manual_seed(0)
    tokenizer = with_tokens(
        image_token="<image_soft_token>", boi_token="<start_of_image>", eoi_token="<end_of_image>"
    )
    images = transformers.Gemma3ImageProcessor(size={"height": 16, "width": 16})
    processor = transformers.Gemma3Processor(
        images, tokenizer, TEMPLATE.replace("IMAGE", "<start_of_image>"), image_seq_length=4
    )
    config = transformers.Gemma3Config(
        vision_config={**IMAGE_TOWER, "num_hidden_layers": layers, "vision_use_head": False},
        text_config={"vocab_size": len(tokenizer), **TEXT, "sliding_window": window,
                     "layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 8},
        mm_tokens_per_image=4, image_token_index=tokenizer.image_token_id, boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
    )  # fmt: skip
    return Tiny(ready(transformers.Gemma3ForConditionalGeneration(config)), processor, tokenizer)


def qwen3_vl(layers: int = 1) -> Tiny:
    """Tokens of 2 x 2 patches of 4 x 4 pixels each, which are added to in two layers of the language model."""
    torch.manual_seed(0)
    names = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    tokenizer = with_tokens("<|vision_start|>", "<|vision_end|>", **names)
    images = transformers.Qwen2VLImageProcessor(
        patch_size=4, size={"shortest_edge": 2 * 64, "longest_edge": 16 * 64}
    )
    template = TEMPLATE.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    processor = transformers.Qwen3VLProcessor(
        images, tokenizer, transformers.Qwen3VLVideoProcessor(), chat_template=template
    )
    config = transformers.Qwen3VLConfig(
        vision_config={"depth": layers, "num_heads": 2, "patch_size": 4, "hidden_size": 16, "intermediate_size": 32,
                       "out_hidden_size": 16, "num_position_embeddings": 16, "initializer_range": 0.5,
                       "deepstack_visual_indexes": [0] * min(layers, 1)},
        text_config={"vocab_size": len(tokenizer), **TEXT,
                     "rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 1e4}},
        image_token_id=processor.image_token_id, video_token_id=processor.video_token_id,
        vision_start_token_id=processor.vision_start_token_id, vision_end_token_id=processor.vision_end_token_id,
    )  # fmt: skip
    return Tiny(ready(transformers.Qwen3VLForConditionalGeneration(config)), processor, tokenizer)


def mllama(layers: int = 1) -> Tiny:
    """Up to four tiles of 4 x 4 patches and a class token, which two of four layers read by cross-attention."""
    torch.manual_seed(0)
    tokenizer = with_tokens("<|python_tag|>", image_token="<|image|>")
    images = transformers.MllamaImageProcessor(size={"height": 16, "width": 16}, max_image_tiles=4)
    template = TEMPLATE.replace("IMAGE", "<|image|>")
    processor = transformers.MllamaProcessor(images, tokenizer, chat_template=template)
    text = {name: value for name, value in TEXT.items() if name not in ("head_dim", "num_hidden_layers")}
    config = transformers.MllamaConfig(
        vision_config={"hidden_size": 16, "intermediate_size": 32, "attention_heads": 2, "image_size": 16,
                       "patch_size": 4, "num_hidden_layers": 1, "num_global_layers": layers,
                       "intermediate_layers_indices": [0], "vision_output_dim": 32, "initializer_range": 0.5},
        text_config={"vocab_size": len(tokenizer), **text, "num_hidden_layers": 4, "cross_attention_layers": [1, 3],
                     "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        image_token_index=tokenizer.image_token_id,
    )  # fmt: skip
    model = transformers.MllamaForConditionalGeneration(config)
    for name, weight in model.named_parameters():
        if "gate" in name and "gate_proj" not in name:
            torch.nn.init.constant_(weight, 0.7)
        if not layers and "vision_model" in name and ("o_proj" in name or "gate_ffn" in name):
            torch.nn.init.zeros_(weight)
        if "vision_model" in name and "o_proj" in name:
            weight.data *= 0.3  # so that tokens answer more to their own patches than to others
    return Tiny(ready(model), processor, tokenizer)


IMAGE_TEXT = {
    "llava": llava,
    "llava-next": llava_next,
    "llava-onevision": llava_onevision,
    "internvl": internvl,
    "gemma3": gemma3,
    "qwen3-vl": qwen3_vl,
    "mllama": mllama,
}
