"""Maps of a vision-language model of transformers, beside `generate`: memory and processor time."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from tools.benchmark.harness import Setting, new_process, say, spread
from tools.documents import table

PIECES = 8
PLAIN, OURS, EAGER = "generate, without maps", "ours, all maps", "generate, output_attentions"
TEMPLATE = (
    "{% for part in messages[0]['content'] %}{% if part['type'] == 'image' %}<|image_pad|>"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}:"
)


def foreign(setting: Setting) -> str:
    """A row for each way to write pieces: growth of memory, and processor time. Each run has a process of its own."""
    if not Path("/proc/self/clear_refs").exists() or setting.device.type != "cpu":
        return "memory of transformers' models is measured on a CPU, under Linux alone"
    rows = []
    for name in (PLAIN, OURS, EAGER):
        runs = []
        for _ in range(setting.rounds):
            say(name)
            with new_process(threads=setting.threads) as process:
                runs.append(process.submit(measure, name, setting.quick).result())
        grown, seconds, parameters, tokens = zip(*runs, strict=True)
        rows.append([name, spread(grown, "{:,.0f} MB"), spread(seconds, "{:.1f} s")])
    layers = 2 if setting.quick else 4
    shape = (
        f"A random language model in the shape of a Qwen3-VL of 3B, cut to {layers} layers: {parameters[0] / 1e6:,.0f} "
        f"million parameters, float32; {tokens[0]:,} image tokens of a photo; {PIECES} pieces."
    )
    return f"{shape}\n\n{table(['', 'memory grew by', 'processor time'], rows)}"


def measure(name: str, quick: bool) -> tuple[float, float, int, int]:
    """Growth of memory in MB, processor time in seconds, and the numbers of parameters and of image tokens."""
    model, processor = qwen3_vl(quick)
    side = 640 if quick else 1024
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 255, (side, side, 3), dtype=np.uint8))
    run = ours(model, processor) if name == OURS else partial(generated, model, processor, name == EAGER)
    run(photo.resize((64, 64)))  # packages are imported
    Path("/proc/self/clear_refs").write_text("5")  # the peak is forgotten
    before, started = memory("VmRSS"), time.process_time()
    run(photo)
    seconds = time.process_time() - started
    parameters = sum(weight.numel() for weight in model.model.language_model.parameters())
    return memory("VmHWM") - before, seconds, parameters, (side // 32) ** 2


def memory(field: str) -> float:
    """VmRSS, the memory of this process, or VmHWM, its peak, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def qwen3_vl(quick: bool) -> tuple[Any, Any]:
    """A random Qwen3-VL with a small tower, and its processor."""
    import transformers as t
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    special = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"}
    letters = {letter: n for n, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    letters["<|endoftext|>"] = len(letters)
    backend = Tokenizer(models.BPE(letters, [], fuse_unk=False))
    backend.pre_tokenizer, backend.decoder = (
        pre_tokenizers.ByteLevel(add_prefix_space=False),
        decoders.ByteLevel(),
    )
    tokenizer = t.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=special,
    )
    tokenizer.add_tokens(["<|vision_start|>", "<|vision_end|>"], special_tokens=True)
    images = t.Qwen2VLImageProcessor(patch_size=16)
    processor = t.Qwen3VLProcessor(images, tokenizer, t.Qwen3VLVideoProcessor(), chat_template=TEMPLATE)
    config = t.Qwen3VLConfig(
        vision_config={"depth": 1, "num_heads": 2, "hidden_size": 64, "intermediate_size": 128,
                       "out_hidden_size": 2048, "deepstack_visual_indexes": [0]},
        text_config={"vocab_size": 32_000, "hidden_size": 2048, "intermediate_size": 11008, "head_dim": 128,
                     "num_hidden_layers": 2 if quick else 4, "num_attention_heads": 16, "num_key_value_heads": 2,
                     "rope_parameters": {"rope_type": "default", "mrope_section": [24, 20, 20], "rope_theta": 5e6}},
        image_token_id=processor.image_token_id, video_token_id=processor.video_token_id,
        vision_start_token_id=processor.vision_start_token_id, vision_end_token_id=processor.vision_end_token_id,
    )  # fmt: skip
    torch.manual_seed(0)
    model = t.Qwen3VLForConditionalGeneration(config).eval()
    end = tokenizer.eos_token_id
    model.generation_config.update(
        max_new_tokens=PIECES, min_new_tokens=PIECES, eos_token_id=end, pad_token_id=end
    )
    return model, processor


def ours(model: Any, processor: Any) -> Callable[[Image.Image], Any]:
    from caption.models.transformers.loading import from_transformers

    return from_transformers(model, processor, processor.tokenizer)


def generated(model: Any, processor: Any, maps: bool, photo: Image.Image) -> Any:
    if maps:
        model.set_attn_implementation({"text_config": "eager", "vision_config": "sdpa"})
    asked = [{"type": "image", "image": photo}, {"type": "text", "text": "What is left of the dog?"}]
    given = processor.apply_chat_template(
        [{"role": "user", "content": asked}], tokenize=True, return_dict=True, return_tensors="pt"
    )
    return model.generate(**given, do_sample=False, output_attentions=maps, return_dict_in_generate=True)
