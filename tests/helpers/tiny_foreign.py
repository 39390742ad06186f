"""Tiny random models of transformers, with tokenizers and image processors of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS = "a red green blue circle square triangle left right of above and two small".split()  # noqa: SIM905
PIECES = ("gi", "##raf", "##fe", "##s", ".", ",")
SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class Tiny(NamedTuple):
    """The three parts of a model."""

    model: Any
    processor: Any
    tokenizer: Any


def wordpiece_tokenizer() -> PreTrainedTokenizerFast:
    """As BERT's: "##" marks what continues a word."""
    names = [*SPECIALS, *PIECES, *WORDS]
    tokenizer = Tokenizer(
        models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """As GPT-2's: "Ġ" marks what begins a word."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<|endoftext|>", *letters, *("Ġ" + word for word in WORDS), "Ġgi", "raf", "fe"]
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys(names))}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    end = "<|endoftext|>"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=end, eos_token=end, pad_token=end)


def vit_processor(**options: Any) -> Any:
    """Of 32 x 32 pixels."""
    return transformers.ViTImageProcessor(**{"size": {"height": 32, "width": 32}, **options})


TOWER: dict[str, Any] = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "image_size": 32,
    "patch_size": 8, "initializer_range": 0.5,
}  # fmt: skip
"""4 x 4 patches and a class token."""
BERT: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64, "initializer_range": 0.5,
}  # fmt: skip


def vit_gpt2(seed: int = 0, decoder: str = "gpt2", tower: Any = None) -> Tiny:
    """A VisionEncoderDecoderModel with two layers of two heads of GPT-2, BERT or TrOCR's decoder; by default its tower
    is a ViT."""
    torch.manual_seed(seed)
    if decoder == "gpt2":
        tokenizer, start, end = byte_level_tokenizer(), 0, 0
        text = transformers.GPT2Config(
            vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.5,
            bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
    else:
        tokenizer = wordpiece_tokenizer()
        start, end = tokenizer.cls_token_id, tokenizer.sep_token_id
        text = transformers.BertConfig(vocab_size=len(tokenizer), **BERT)
        if decoder == "trocr":
            text = transformers.TrOCRConfig(
                vocab_size=len(tokenizer), d_model=16, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=32,
                max_position_embeddings=64,
            )  # fmt: skip
    tower = tower or transformers.ViTConfig(**TOWER)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(tower, text)
    special = {"decoder_start_token_id": start, "pad_token_id": tokenizer.pad_token_id, "eos_token_id": end}
    for name, value in special.items():
        setattr(config, name, value)
    model = transformers.VisionEncoderDecoderModel(config).eval()
    model.generation_config.update(**special, max_length=9, num_beams=1)
    return Tiny(model, vit_processor(), tokenizer)


def swin_gpt2(size: int = 32) -> Tiny:
    """Of three stages with windows of 2 x 2 patches; of 32 pixels, the last one has a single window."""
    tiny = vit_gpt2(tower=transformers.SwinConfig(
        image_size=size, patch_size=4, embed_dim=8, depths=[1, 1, 1], num_heads=[1, 2, 2], window_size=2
    ))  # fmt: skip
    tiny.processor.size = {"height": size, "width": size}
    return tiny


def blip(seed: int = 0) -> Tiny:
    """BLIP, with two layers of two heads."""
    torch.manual_seed(seed)
    tokenizer = wordpiece_tokenizer()
    end = {"eos_token_id": tokenizer.sep_token_id, "sep_token_id": tokenizer.sep_token_id}
    special = {"bos_token_id": tokenizer.cls_token_id, "pad_token_id": tokenizer.pad_token_id, **end}
    text = {"vocab_size": len(tokenizer), "encoder_hidden_size": 24, **BERT, **special}
    config = transformers.BlipConfig(text_config=text, vision_config=TOWER, projection_dim=16)
    model = transformers.BlipForConditionalGeneration(config).eval()
    model.generation_config.update(max_length=9)
    processor = transformers.BlipImageProcessor(size={"height": 32, "width": 32})
    return Tiny(model, processor, tokenizer)


def pix2struct(layers: int = 2) -> Tiny:
    """At most 26 patches, in the proportions of a photo; without layers, its processor does not weigh light by that of
    the whole photo."""
    torch.manual_seed(2)
    tokenizer = wordpiece_tokenizer()
    special = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": tokenizer.sep_token_id}
    config = transformers.Pix2StructConfig(
        vision_config={"hidden_size": 24, "patch_embed_hidden_size": 192, "d_ff": 32, "d_kv": 12, "seq_len": 64,
                       "num_hidden_layers": layers, "num_attention_heads": 2},
        text_config={"vocab_size": len(tokenizer), "hidden_size": 24, "d_kv": 12, "d_ff": 32, "num_layers": 2,
                     "num_heads": 2, **special},
        initializer_range=0.3,
    )  # fmt: skip
    model = transformers.Pix2StructForConditionalGeneration(config).eval()
    model.generation_config.update(**special, max_length=9, num_beams=1)
    processor = transformers.Pix2StructImageProcessor(
        patch_size={"height": 8, "width": 8}, max_patches=26, do_normalize=layers > 0
    )
    return Tiny(model, processor, tokenizer)


def save(tiny: Tiny, folder: Path) -> Path:
    """Write a model as transformers does."""
    for part in tiny:
        part.save_pretrained(folder)
    return folder
