"""Tiny captioners of `transformers`, trained on Shapes in minutes on one core: rows of tools/tables/foreign.yaml.

The vision transformer (8 x 8 patches) first learns which object lies under each patch, because captions alone left the
loss on a plateau; then all weights learn from captions. The scenes are those of `-c shapes_soft`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# This package comes before transformers, which imports torchvision.
from caption.analysis.covered_cells import centres_inside
from caption.data.photos import open_image
from caption.data.shapes import Shapes
from caption.data.shapes.scene import NAMES

# isort: split
import tokenizers
import torch
import transformers as hf
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

SIDE, ROWS, WIDTH = 64, 8, 64  # of a scene in pixels, in patches, and of a layer
SQUARE = {"height": SIDE, "width": SIDE}
SIZES = {
    "hidden_size": WIDTH,
    "intermediate_size": 4 * WIDTH,
    "num_attention_heads": 4,
    "initializer_range": 0.08,
}
VISION = SIZES | {"num_hidden_layers": 3, "image_size": SIDE, "patch_size": SIDE // ROWS}
PAD, UNKNOWN, START, END, IMAGE = SPECIAL = ("[PAD]", "[UNK]", "[BOS]", "[EOS]", "<image>")
CAPTIONS = 5  # of a scene
IGNORED = -100  # in labels


def word_tokenizer(words: set[str]) -> Any:
    """A tokenizer with one token per word, split at spaces."""
    numbers = {word: number for number, word in enumerate([*SPECIAL, *sorted(words)])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(numbers, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": PAD, "unk_token": UNKNOWN, "bos_token": START, "eos_token": END}
    return hf.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def text_sizes(tokenizer: Any) -> dict[str, Any]:
    special = {name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    sizes = {"num_hidden_layers": 2, "vocab_size": len(tokenizer), "max_position_embeddings": 128}
    return SIZES | special | sizes


def vit_gpt2(tokenizer: Any) -> tuple[Any, Any, Any]:
    """A ViT, and GPT-2 with cross-attention. Like the functions below, it returns model, vision tower and processor."""
    text = hf.GPT2Config(**text_sizes(tokenizer), is_decoder=True, add_cross_attention=True)
    vision = hf.ViTModel(hf.ViTConfig(**VISION))
    model = hf.VisionEncoderDecoderModel(encoder=vision, decoder=hf.GPT2LMHeadModel(text))
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    for config in (model.config, model.generation_config):
        config.update({"decoder_start_token_id": tokenizer.bos_token_id, **special})
    return model, model.encoder, hf.ViTImageProcessor(size=SQUARE)


def blip(tokenizer: Any) -> tuple[Any, Any, Any]:
    """BLIP, whose text decoder has cross-attention."""
    text, spread = (
        text_sizes(tokenizer) | {"sep_token_id": tokenizer.eos_token_id},
        SIZES["initializer_range"],
    )
    config = hf.BlipConfig(text_config=text, vision_config=VISION, initializer_range=spread)
    model = hf.BlipForConditionalGeneration(config)
    return model, model.vision_model, hf.BlipProcessor(hf.BlipImageProcessor(size=SQUARE), tokenizer)


def git(tokenizer: Any) -> tuple[Any, Any, Any]:
    """GIT, which puts image tokens in front of the words."""
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = hf.GitForCausalLM(hf.GitConfig(**text_sizes(tokenizer), **dropout, vision_config=VISION))
    images = hf.CLIPImageProcessor(size={"shortest_edge": SIDE}, crop_size=SQUARE)
    return model, model.git.image_encoder, hf.GitProcessor(images, tokenizer)


def idefics3(tokenizer: Any) -> tuple[Any, Any, Any]:
    """Idefics3 (SmolVLM), a language model whose prompt has a token for each patch of one tile, and no question."""
    more = ["<fake_token_around_image>", "<global-img>", "<end_of_utterance>"]
    tokenizer.add_special_tokens({"extra_special_tokens": more})
    edge = {"longest_edge": SIDE}
    images = hf.Idefics3ImageProcessor(size=edge, max_image_size=edge, do_image_splitting=False)
    processor = hf.Idefics3Processor(images, tokenizer, image_seq_len=ROWS**2, chat_template=START + IMAGE)
    text = text_sizes(tokenizer) | {"model_type": "llama", "num_key_value_heads": 4}
    numbers = {
        "image_token_id": tokenizer.convert_tokens_to_ids(IMAGE),
        "pad_token_id": tokenizer.pad_token_id,
    }
    config = hf.Idefics3Config(text_config=text, vision_config=VISION, scale_factor=1, **numbers)
    model = hf.Idefics3ForConditionalGeneration(config)
    return model, model.model.vision_model, processor


MODELS = {build.__name__: build for build in (vit_gpt2, blip, git, idefics3)}


def place_patches(tower: nn.Module) -> None:
    """Let the learned positions of patches begin as sines and cosines of row and column (He et al. 2022, MAE). From
    random ones, "to the left of" would have to be learnt from thousands of scenes first."""
    angles = torch.outer(torch.arange(ROWS), 0.01 ** (torch.arange(WIDTH // 4) / (WIDTH // 4)))
    waves = torch.cat((angles.sin(), angles.cos()), 1) / 2  # (rows, D / 2)
    rows, cols = waves[:, None].expand(-1, ROWS, -1), waves.expand(ROWS, -1, -1)
    (positions,) = (weight for name, weight in tower.named_parameters() if "position_embedding" in name)
    positions.data[..., -(ROWS**2) :, :] = torch.cat((rows, cols), -1).flatten(0, 1)


def fit(
    model: nn.Module, loss: Callable[[Tensor], Tensor], scenes: int, batch: int, steps: int
) -> list[float]:
    """Lower the loss of random scenes, which it takes by their numbers; returns it for each step."""
    optimizer = torch.optim.AdamW(model.parameters(), 1.5e-3, betas=(0.9, 0.98), weight_decay=0.05)
    schedule, losses = hf.get_cosine_schedule_with_warmup(optimizer, steps // 10, steps), []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(torch.randint(scenes, (batch,)))
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(value.item())
    return losses


def inputs_of(photos: Sequence[Any], processor: Any, tokenizer: Any) -> tuple[Tensor, list[int]]:
    """The pixels of photos for a model, and the tokens before each caption."""
    if isinstance(processor, hf.Idefics3Processor):
        photos, text = [[photo] for photo in photos], [START + IMAGE] * len(photos)
        inputs = processor(images=photos, text=text, return_tensors="pt")
        return inputs["pixel_values"], inputs["input_ids"][0].tolist()
    prompt = [] if isinstance(processor, hf.ViTImageProcessor) else [tokenizer.bos_token_id]
    return processor(images=photos, return_tensors="pt")["pixel_values"], prompt


def train(
    name: str,
    out: Path,
    scenes: Path,
    seed: int,
    count: int = 4000,
    pretraining: int = 1000,
    steps: int = 1200,
) -> list[float]:
    """Train a model of MODELS, and save it for `caption.load("transformers:OUT")`.

    Args:
        scenes: folder in which the scenes are drawn.
        count: number of scenes.
        pretraining: batches of 32 scenes for the tower alone.
        steps: batches of 16 scenes with all their captions.

    Returns:
        the mean cross-entropy of a word at each step, in nats.
    """
    hf.set_seed(seed)
    reader = Shapes(str(scenes), train=count)
    images, boxes = reader.read()["train"], reader.boxes("train")
    tokenizer = word_tokenizer({word for image in images for text in image.captions for word in text.split()})
    model, tower, processor = MODELS[name](tokenizer)
    place_patches(tower)
    pixels, prompt = inputs_of([open_image(image.path) for image in images], processor, tokenizer)

    head, objects = nn.Linear(WIDTH, len(NAMES) + 1), torch.zeros(count, ROWS**2, dtype=torch.int64)
    for image, row in zip(images, objects, strict=True):
        for number, kind in enumerate(NAMES, 1):
            inside = centres_inside(ROWS, ROWS, (0, 0, SIDE, SIDE), boxes[image.id].get(kind, ()))
            row[torch.from_numpy(inside).flatten()] = number

    def loss_of_patches(chosen: Tensor) -> Tensor:
        patches = tower(pixel_values=pixels[chosen].flatten(0, -4)).last_hidden_state[:, -(ROWS**2) :]
        return cross_entropy(head(patches).flatten(0, 1), objects[chosen].flatten())

    def loss_of_captions(chosen: Tensor) -> Tensor:
        texts = [f"{text} {END}" for number in chosen for text in images[number].captions]
        captions = tokenizer(texts, add_special_tokens=False)["input_ids"]
        labels = pad_sequence(
            [torch.tensor([IGNORED] * len(prompt) + words) for words in captions], True, IGNORED
        )
        inputs = {"pixel_values": pixels[chosen], "labels": labels}
        if prompt:  # a model without a prompt makes its inputs from the labels
            tokens = [torch.tensor([*prompt, *words]) for words in captions]
            masks = [torch.ones_like(ids) for ids in tokens]
            inputs |= {"input_ids": pad_sequence(tokens, True), "attention_mask": pad_sequence(masks, True)}
        if name == "idefics3":  # it needs a photo for each prompt
            inputs["pixel_values"] = inputs["pixel_values"].repeat_interleave(CAPTIONS, 0)
        return model(**inputs).loss

    fit(nn.ModuleList([tower, head]), loss_of_patches, count, 32, pretraining)
    if name != "idefics3":
        tower.register_forward_hook(repeat_for_captions)
    losses = fit(model, loss_of_captions, count, 16, steps)
    model.generation_config.max_new_tokens = 24
    for part in (model, tokenizer, processor):
        part.save_pretrained(out)
    return losses


def repeat_for_captions(tower: nn.Module, inputs: Any, output: Any) -> None:
    """Let the captions of a scene share one pass through the tower, which takes most of the time."""
    output.last_hidden_state = output.last_hidden_state.repeat_interleave(CAPTIONS, 0)
