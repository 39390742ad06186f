"""Tiny random models of transformers whose language model reads no patches, but what another part has read of them."""

from __future__ import annotations

from typing import Any

import torch
import transformers
from helpers.tiny_foreign import BERT, TOWER, Tiny, wordpiece_tokenizer
from helpers.tiny_image_text import TEXT, ready, with_tokens
from tokenizers.processors import TemplateProcessing


def blip2(layers: int = 2, name: str = "Blip2", **text: Any) -> Tiny:
    """Three query tokens, which read 4 x 4 patches and a class token in the first and the last of three layers, and
    OPT; `name` may be InstructBlip, whose query tokens read the question, too; then with LLaMA."""
    torch.manual_seed(0)
    tokenizer, is_instructed = with_tokens(), name == "InstructBlip"
    start = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        f"{start} $A", special_tokens=[(start, 0)]
    )
    images = transformers.BlipImageProcessor(size={"height": 32, "width": 32})
    question_tokenizer = {"qformer_tokenizer": wordpiece_tokenizer()} if is_instructed else {}
    processor = getattr(transformers, f"{name}Processor")(
        images, tokenizer, num_query_tokens=3, **question_tokenizer
    )
    opt = {"ffn_dim": 32, "word_embed_proj_dim": 16, "max_position_embeddings": 64, "init_std": 0.5}
    language_model = {"model_type": "llama"} if is_instructed else {"model_type": "opt", **opt}
    config = getattr(transformers, f"{name}Config")(
        vision_config={**TOWER, "num_hidden_layers": layers},
        qformer_config={**BERT, "num_hidden_layers": 3, "vocab_size": 40},
        text_config={"vocab_size": len(tokenizer), **TEXT, **language_model, **text},
        num_query_tokens=3, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    model = getattr(transformers, f"{name}ForConditionalGeneration")(config)
    for weight in (model.query_tokens, model.language_projection.weight):
        torch.nn.init.normal_(weight)
    ready(model.language_model)
    return Tiny(model.eval(), processor, tokenizer)


def kosmos2(layers: int = 2) -> Tiny:
    """Three latent queries, which read 4 x 4 patches, a class token and themselves, among the pieces of a prompt."""
    torch.manual_seed(0)
    tokenizer = with_tokens("<unk>", "<query>", "<query 2>", "<query 3>")
    tokenizer.unk_token = "<unk>"
    images = transformers.CLIPImageProcessor(size={"height": 32, "width": 32}, do_center_crop=False)
    processor: Any = transformers.Kosmos2Processor(images, tokenizer, num_patch_index_tokens=4)
    processor.num_image_tokens = 3
    config = transformers.Kosmos2Config(
        vision_config={**TOWER, "num_hidden_layers": layers},
        text_config={"vocab_size": len(tokenizer), "embed_dim": 16, "layers": 2, "attention_heads": 2, "ffn_dim": 32,
                     "max_position_embeddings": 64, "init_std": 0.5, "pad_token_id": 1, "bos_token_id": 0,
                     "eos_token_id": 0},
        latent_query_num=3,
    )  # fmt: skip
    model = transformers.Kosmos2ForConditionalGeneration(config)
    ready(model.text_model)
    return Tiny(model.eval(), processor, tokenizer)


QUERIES = {
    "blip2": blip2,
    "instructblip": lambda layers=2: blip2(layers, "InstructBlip"),
    "kosmos2": kosmos2,
}


def florence2(layers: int = 1) -> Tiny:
    """4 x 4 image tokens of 8 x 8 pixels, and their mean, which BART's encoder reads with the question."""
    torch.manual_seed(0)
    tokenizer = with_tokens(image_token="<image>")
    images: Any = transformers.CLIPImageProcessor(size={"height": 32, "width": 32}, do_center_crop=False)
    images.image_seq_length = 17
    processor = transformers.Florence2Processor(images, tokenizer)
    names = ("encoder_layers", "decoder_layers", "encoder_attention_heads", "decoder_attention_heads")
    bart = dict.fromkeys(names, 2)
    config = transformers.Florence2Config(
        vision_config={
            "depths": (layers, layers), "patch_size": (7, 3), "patch_stride": (4, 2), "patch_padding": (3, 1),
            "patch_prenorm": (False, True), "embed_dim": (8, 16), "num_heads": (2, 2), "num_groups": (2, 2),
            "window_size": 3, "projection_dim": 16, "initializer_range": 0.5,
        },
        text_config={"model_type": "bart", "d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, **bart,
                     "vocab_size": len(tokenizer), "max_position_embeddings": 128, "init_std": 0.5, "pad_token_id": 1,
                     "bos_token_id": 0, "eos_token_id": 0, "decoder_start_token_id": 0, "forced_eos_token_id": None},
        image_token_id=tokenizer.image_token_id,
    )  # fmt: skip
    model = transformers.Florence2ForConditionalGeneration(config)
    return Tiny(ready(model), processor, tokenizer)
