"""Tiny random models of transformers whose language model reads image tokens: GIT, PaliGemma, Idefics3, Qwen2-VL."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from helpers.tiny_foreign import Tiny, byte_level_tokenizer, wordpiece_tokenizer
from transformers import PreTrainedTokenizerFast

TEXT: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 8, "initializer_range": 0.5, "pad_token_id": 0, "bos_token_id": 0,
    "eos_token_id": 0,
}  # fmt: skip
TOWER: dict[str, Any] = {
    "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "image_size": 16, "patch_size": 4,
    "initializer_range": 0.5,
}  # fmt: skip
TEMPLATE = (
    "{% for message in messages %}User:{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}IMAGE{% else %}{{ part['text'] }}{% endif %}{% endfor %}\n"
    "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
)
"""A chat template; IMAGE stands for the image's place."""


def _with_tokens(*tokens: str) -> PreTrainedTokenizerFast:
    tokenizer = byte_level_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)})
    return tokenizer


def _ready(model: Any) -> Any:
    model.generation_config.update(max_new_tokens=8, eos_token_id=0, pad_token_id=0)
    return model.eval()


def git(layers: int = 1) -> Tiny:
    """4 x 4 patches and a class token of the centre of a photo; `layers` is of its tower, here and below."""
    torch.manual_seed(0)
    tokenizer = wordpiece_tokenizer()
    start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
    text = {name: value for name, value in TEXT.items() if name not in ("num_key_value_heads", "head_dim")}
    special = {"bos_token_id": start, "eos_token_id": end, "pad_token_id": tokenizer.pad_token_id}
    config = transformers.GitConfig(
        vision_config={**TOWER, "num_hidden_layers": layers}, vocab_size=len(tokenizer),
        **{**text, **special}, max_position_embeddings=64,
    )  # fmt: skip
    model = transformers.GitForCausalLM(config).eval()
    model.generation_config.update(max_length=9, **special)
    processor = transformers.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size=16)
    return Tiny(model, transformers.GitProcessor(processor, tokenizer), tokenizer)


def paligemma(layers: int = 1, **text: Any) -> Tiny:
    """4 x 4 patches, in front of the prompt."""
    torch.manual_seed(0)
    tokenizer = _with_tokens("<image>")
    images = transformers.SiglipImageProcessor(size={"height": 16, "width": 16})
    images.image_seq_length = 16
    processor = transformers.PaliGemmaProcessor(images, tokenizer)
    config = transformers.PaliGemmaConfig(
        vision_config={**TOWER, "model_type": "siglip_vision_model", "num_hidden_layers": layers,
                       "vision_use_head": False},
        text_config={"model_type": "gemma", "vocab_size": len(tokenizer), **TEXT, **text},
        image_token_index=processor.image_token_id, projection_dim=16, hidden_size=16,
    )  # fmt: skip
    return Tiny(_ready(transformers.PaliGemmaForConditionalGeneration(config)), processor, tokenizer)


def idefics3(layers: int = 1, split: bool = True, tokens: int = 4, name: str = "Idefics3") -> Tiny:
    """2 x 2 tokens, of 2 x 2 patches each, for each tile of 16 x 16 pixels, two of them along a photo; `name` may be
    SmolVLM, whose own processor needs more packages."""
    torch.manual_seed(0)
    places = [f"<row_{row}_col_{col}>" for row in (1, 2) for col in (1, 2)]
    tokenizer = _with_tokens("<image>", "<fake_token_around_image>", "<global-img>", *places)
    images = transformers.Idefics3ImageProcessor(
        size={"longest_edge": 32}, max_image_size={"longest_edge": 16}, do_image_splitting=split
    )
    processor = transformers.Idefics3Processor(
        images, tokenizer, image_seq_len=tokens, chat_template=TEMPLATE.replace("IMAGE", "<image>")
    )
    config = getattr(transformers, f"{name}Config")(
        vision_config={**TOWER, "num_hidden_layers": layers},
        text_config={"model_type": "llama", "vocab_size": len(tokenizer), **TEXT},
        image_token_id=processor.image_token_id, scale_factor=2,
    )  # fmt: skip
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    return Tiny(_ready(model), processor, tokenizer)


def qwen2_vl(layers: int = 1, name: str = "Qwen2VL") -> Tiny:
    """Tokens of 2 x 2 patches of 4 x 4 pixels each, 2 to 16 of a photo."""
    torch.manual_seed(0)
    tokenizer = _with_tokens("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    images = transformers.Qwen2VLImageProcessor(
        patch_size=4, size={"shortest_edge": 2 * 64, "longest_edge": 16 * 64}
    )
    template = TEMPLATE.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    videos = transformers.Qwen2VLVideoProcessor()
    processor = transformers.Qwen2VLProcessor(images, tokenizer, videos, chat_template=template)
    names = ("image_token", "video_token", "vision_start_token", "vision_end_token")
    numbers = (len(tokenizer) - 4 + place for place in range(4))
    tower: dict[str, Any] = {"depth": layers, "num_heads": 2, "patch_size": 4}
    if name == "Qwen2VL":
        tower["embed_dim"] = 16
    else:  # windows of 2 x 2 tokens, which the tower sorts together
        tower |= {
            "intermediate_size": 32,
            "out_hidden_size": 16,
            "window_size": 16,
            "fullatt_block_indexes": [],
        }
    tower |= {"hidden_size": 16, "initializer_range": 0.5}
    config = getattr(transformers, f"{name}Config")(
        vision_config=tower,
        text_config={"vocab_size": len(tokenizer), **TEXT,
                     "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}},
        **{f"{name}_id": number for name, number in zip(names, numbers, strict=True)},
    )  # fmt: skip
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    return Tiny(_ready(model), processor, tokenizer)
