"""Train a tiny captioner of `transformers` on Shapes, where it is known on which object a word should look.

    python -m tools.foreign --model blip --out runs/blip        # minutes on one core; no network
    caption analyse --model transformers:runs/blip

Classes, training loop and files are those of `transformers`: the folder has the configuration, safetensors, a
word-level tokenizer and the image processor, as of any model of the hub. The vision transformer sees 64 x 64 pixels as
8 x 8 patches. It is first taught what lies under each patch, because captions alone left the loss on a plateau; then
all is trained on captions. The scenes are those of `-c shapes_soft`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# This package comes before transformers, which imports torchvision.
from caption.analysis.covered_cells import centres_inside
from caption.data.photos import open_image
from caption.data.shapes import Shapes
from caption.data.shapes.scene import NAMES
from caption.data.splits import CaptionedImage
from caption.metrics import evaluate
from caption.models.model_zoo import load

# isort: split
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.hooks import RemovableHandle
from transformers import (
    BlipConfig,
    BlipForConditionalGeneration,
    BlipImageProcessor,
    BlipProcessor,
    CLIPImageProcessor,
    GitConfig,
    GitForCausalLM,
    GitProcessor,
    GPT2Config,
    GPT2LMHeadModel,
    Idefics3Config,
    Idefics3ForConditionalGeneration,
    Idefics3ImageProcessor,
    Idefics3Processor,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTImageProcessor,
    ViTModel,
    set_seed,
)

from tools import make_parser

SIDE, PATCH, WIDTH, HEADS = 64, 8, 64, 4
VISION_LAYERS, TEXT_LAYERS = 3, 2
BATCH = 16  # scenes
CELLS = (SIDE // PATCH) ** 2
INITIAL = 0.08
"""Standard deviation of the first weights; the usual 0.02 is for widths around 768."""
PAD, UNKNOWN, START, END, IMAGE = "[PAD]", "[UNK]", "[BOS]", "[EOS]", "<image>"
SIZES: dict[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 4 * WIDTH,
    "num_attention_heads": HEADS,
    "initializer_range": INITIAL,
}
VISION = SIZES | {"num_hidden_layers": VISION_LAYERS, "image_size": SIDE, "patch_size": PATCH}
"""Of configurations, by the names that transformers gives them."""
LONGEST = 24
"""Of a caption, in words."""
CAPTIONS = 5  # of a scene
IGNORED = -100  # in labels


def word_tokenizer(captions: Sequence[str]) -> PreTrainedTokenizerFast:
    """A tokenizer with one token per word of the captions, split at spaces."""
    special = (PAD, UNKNOWN, START, END, IMAGE)
    words = sorted({word for caption in captions for word in caption.split()})
    tokenizer = Tokenizer(
        models.WordLevel({word: k for k, word in enumerate([*special, *words])}, unk_token=UNKNOWN)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, unk_token=UNKNOWN, bos_token=START, eos_token=END,
    )  # fmt: skip


def _text(tokenizer: PreTrainedTokenizerFast, **more: Any) -> dict[str, Any]:
    special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    return SIZES | special | {"num_hidden_layers": TEXT_LAYERS, "vocab_size": len(tokenizer), **more}


def vit_gpt2(tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedModel, Any]:
    """A ViT and GPT-2 with cross-attention, with its image processor."""
    text = _text(tokenizer, max_position_embeddings=64, is_decoder=True, add_cross_attention=True)
    decoder = GPT2LMHeadModel(GPT2Config(**text))
    model = VisionEncoderDecoderModel(encoder=ViTModel(ViTConfig(**VISION)), decoder=decoder)
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id = tokenizer.bos_token_id
        config.eos_token_id, config.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    return model, ViTImageProcessor(size={"height": SIDE, "width": SIDE})


def blip(tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedModel, Any]:
    """BLIP, whose text decoder has cross-attention, with its processor."""
    text = _text(tokenizer, sep_token_id=tokenizer.eos_token_id, max_position_embeddings=64)
    config = BlipConfig(text_config=text, vision_config=VISION, initializer_range=INITIAL)
    images = BlipImageProcessor(size={"height": SIDE, "width": SIDE})
    return BlipForConditionalGeneration(config), BlipProcessor(images, tokenizer)


def git(tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedModel, Any]:
    """GIT, which puts image tokens in front of the words, with its processor."""
    dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    config = GitConfig(**_text(tokenizer, max_position_embeddings=64, **dropout), vision_config=VISION)
    images = CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size={"height": SIDE, "width": SIDE})
    return GitForCausalLM(config), GitProcessor(images, tokenizer)


def idefics3(tokenizer: PreTrainedTokenizerFast) -> tuple[PreTrainedModel, Any]:
    """Idefics3 (SmolVLM), a language model with image tokens in its prompt, with its processor: one tile, and a
    token for each patch. It is asked nothing."""
    edge = {"longest_edge": SIDE}
    images = Idefics3ImageProcessor(size=edge, max_image_size=edge, do_image_splitting=False)
    tokenizer.add_special_tokens(
        {"extra_special_tokens": ["<fake_token_around_image>", "<global-img>", "<end_of_utterance>"]}
    )
    processor = Idefics3Processor(images, tokenizer, image_seq_len=CELLS, chat_template=START + IMAGE)
    text = _text(tokenizer, model_type="llama", num_key_value_heads=HEADS, max_position_embeddings=128)
    config = Idefics3Config(
        text_config=text, vision_config=VISION, scale_factor=1,
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE), pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return Idefics3ForConditionalGeneration(config), processor


MODELS: dict[str, tuple[Callable[[PreTrainedTokenizerFast], tuple[PreTrainedModel, Any]], str]] = {
    "vit_gpt2": (vit_gpt2, "encoder"),
    "blip": (blip, "vision_model"),
    "git": (git, "git.image_encoder"),
    "idefics3": (idefics3, "model.vision_model"),
}
"""What builds a model, and the name of its vision tower."""


class Example(NamedTuple):
    """A scene with its captions."""

    pixels: Tensor
    """As the model's processor gives them."""
    prompt: list[int]
    """The tokens before a caption."""
    captions: list[list[int]]
    """Their tokens, with END."""


class Scenes:
    """Scenes as examples of the trainer.

    Args:
        images: the scenes.
        processor: of the model; that of Idefics3 also writes the prompt.
    """

    def __init__(
        self, images: Sequence[CaptionedImage], tokenizer: PreTrainedTokenizerFast, processor: Any
    ) -> None:
        self.images, self.tokenizer = images, tokenizer
        self.prompt = [tokenizer.bos_token_id]
        pictures: list[Any] = [open_image(image.path) for image in images]
        if isinstance(processor, Idefics3Processor):
            self.prompt = processor(images=pictures[:1], text=[START + IMAGE])["input_ids"][0]
            processor = processor.image_processor
            pictures = [[picture] for picture in pictures]  # one image for each prompt
        parts = [
            processor(images=pictures[k : k + 100], return_tensors="pt") for k in range(0, len(pictures), 100)
        ]
        self.pixels = torch.cat([part["pixel_values"] for part in parts])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, number: int) -> Example:
        captions = self.tokenizer(list(self.images[number].captions), add_special_tokens=False)["input_ids"]
        ended = [[*caption, self.tokenizer.eos_token_id] for caption in captions]
        return Example(self.pixels[number], self.prompt, ended)


def collate(examples: Sequence[Example], decoder_inputs: bool, shared: bool) -> dict[str, Tensor]:
    """A batch of N scenes and all their captions.

    Args:
        decoder_inputs: whether the model is given the tokens and their mask; otherwise it shifts the labels itself.
        shared: whether there is one image for all captions of a scene, see `share_images`.
    """
    prompt = examples[0].prompt if decoder_inputs else []
    captions = [[*prompt, *caption] for example in examples for caption in example.captions]
    lengths = torch.tensor([len(caption) for caption in captions])
    tokens = pad_sequence([torch.tensor(caption) for caption in captions], batch_first=True)
    place = torch.arange(tokens.shape[1])
    mask = place < lengths[:, None]
    labels = tokens.masked_fill(~mask | (place < len(prompt)), IGNORED)
    pixels = torch.stack([example.pixels for example in examples])
    batch = {"pixel_values": pixels if shared else pixels.repeat_interleave(CAPTIONS, 0), "labels": labels}
    return batch | ({"input_ids": tokens, "attention_mask": mask.long()} if decoder_inputs else {})


def share_images(tower: torch.nn.Module) -> RemovableHandle:
    """Let the captions of an image share one pass through the vision tower, which takes most of the time."""

    def repeat(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        output.last_hidden_state = output.last_hidden_state.repeat_interleave(CAPTIONS, 0)

    return tower.register_forward_hook(repeat)


def place_patches(tower: torch.nn.Module) -> None:
    """Let the learned positions of patches begin as sines and cosines of row and column (He et al. 2022, MAE). From
    random ones, "to the left of" would have to be learnt from thousands of scenes first."""
    for name, positions in tower.named_parameters():
        if "position_embedding" in name:
            side, width = math.isqrt(positions.shape[-2]), positions.shape[-1]
            angles = torch.outer(torch.arange(side), 1 / 100 ** (torch.arange(width // 4) / (width // 4)))
            waves = torch.cat((angles.sin(), angles.cos()), 1)  # (side, D / 2)
            rows, cols = waves[:, None].expand(-1, side, -1), waves[None].expand(side, -1, -1)
            with torch.no_grad():
                positions[..., -side * side :, :] = torch.cat((rows, cols), -1).flatten(0, 1) / 2


def patch_labels(reader: Shapes, images: Sequence[CaptionedImage]) -> Tensor:
    """(N, L) int64: the number in NAMES, from 1, of the object whose box has the centre of a patch, or 0."""
    labels = torch.zeros(len(images), CELLS, dtype=torch.int64)
    boxes, side = reader.boxes("train"), SIDE // PATCH
    for row, image in enumerate(images):
        for number, name in enumerate(NAMES, 1):
            inside = centres_inside(side, side, (0, 0, SIDE, SIDE), boxes[image.id].get(name, ()))
            labels[row, torch.from_numpy(inside).flatten()] = number
    return labels


def pretrain(tower: torch.nn.Module, pixels: Tensor, labels: Tensor, steps: int, rate: float) -> float:
    """Teach a vision tower what lies under each patch; towers of captioners come pretrained, too.

    Args:
        pixels: (N, 3, height, width).
        labels: see `patch_labels`.

    Returns:
        the share of the patches on objects that are named rightly, in the last tenth of the steps.
    """
    head = torch.nn.Linear(WIDTH, len(NAMES) + 1)
    optimizer = torch.optim.AdamW([*tower.parameters(), *head.parameters()], rate, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps, pct_start=0.1)
    right = []
    for _ in range(steps):
        chosen = torch.randint(len(pixels), (2 * BATCH,))
        scores = head(tower(pixel_values=pixels[chosen]).last_hidden_state[:, -CELLS:]).flatten(0, 1)
        wanted = labels[chosen].flatten()
        loss = torch.nn.functional.cross_entropy(scores, wanted)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(tower.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        right.append((scores.argmax(-1) == wanted)[wanted > 0].float().mean().item())
    last = right[-max(steps // 10, 1) :]
    return sum(last) / len(last)


def train(
    name: str,
    out: Path,
    scenes: Path,
    counts: Mapping[str, int],
    pretraining: int,
    steps: int,
    rate: float,
    seed: int,
) -> dict[str, Any]:
    """Train a model of `MODELS` and save it.

    Returns:
        losses on the way, the number of parameters, and BLEU-4 and CIDEr of greedy captions of validation scenes.
    """
    set_seed(seed)
    reader = Shapes(str(scenes), **counts)
    splits = reader.read()
    tokenizer = word_tokenizer([caption for image in splits["train"] for caption in image.captions])
    build, tower_name = MODELS[name]
    shared = name != "idefics3"  # which counts the images of each prompt
    model, processor = build(tokenizer)
    arguments = TrainingArguments(
        output_dir=str(out), max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=rate, warmup_steps=0.1,
        lr_scheduler_type="cosine", weight_decay=0.05, adam_beta2=0.98, seed=seed, logging_steps=max(steps // 40, 1),
        save_strategy="no", report_to=[], remove_unused_columns=False, use_cpu=True, disable_tqdm=True,
    )  # fmt: skip
    tower, examples = model.get_submodule(tower_name), Scenes(splits["train"], tokenizer, processor)
    place_patches(tower)
    labels = patch_labels(reader, splits["train"])
    patches_right = pretrain(tower, examples.pixels.flatten(0, -4), labels, pretraining, rate)
    trainer = Trainer(
        model, arguments, train_dataset=examples,
        data_collator=partial(collate, decoder_inputs=name != "vit_gpt2", shared=shared),
    )  # fmt: skip
    with share_images(tower) if shared else nullcontext():
        trainer.train()
    model.generation_config.max_new_tokens = LONGEST
    for part in (model, tokenizer, processor):
        part.save_pretrained(out)
    texts = [
        caption.text
        for caption in load(f"transformers:{out}").describe([image.path for image in splits["val"]])
    ]
    references = {image.id: image.captions for image in splits["val"]}
    scores = evaluate(dict(zip(references, texts, strict=True)), references)
    return {
        "patches named rightly": patches_right,
        "loss": [entry["loss"] for entry in trainer.state.log_history if "loss" in entry],
        "parameters": model.num_parameters(),
        **{metric: scores[metric] for metric in ("BLEU-4", "CIDEr")},
    }


def main(args: Sequence[str] | None = None) -> int:
    parser = make_parser("foreign", __doc__)
    add = parser.add_argument
    add("--model", choices=MODELS, required=True)
    add("--out", type=Path, required=True, metavar="FOLDER", help="folder of the trained model")
    add("--scenes", type=Path, default=Path("data/shapes"), metavar="DIR", help="folder of Shapes")
    add("--train", type=int, default=4000, metavar="N", help="training scenes")
    add("--steps", type=int, default=1200, metavar="N", help="batches of 16 scenes with their captions")
    add("--pretraining", type=int, default=1000, metavar="N", help="batches of 32 scenes for the tower alone")
    add("--rate", type=float, default=1.5e-3, metavar="LR", help="highest learning rate")
    add("--seed", type=int, default=0, metavar="N")
    options = parser.parse_args(args)
    result = train(
        options.model, options.out, options.scenes, {"train": options.train},
        options.pretraining, options.steps, options.rate, options.seed,
    )  # fmt: skip
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
