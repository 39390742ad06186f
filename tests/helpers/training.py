"""Small trainings on Shapes: data, model, trainer, and callbacks that watch."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer, seed_everything
from torch import Tensor, nn

from caption.attention import AdditiveScore, Alignment, ScoredAttention, Softmax
from caption.data.module import CaptionData
from caption.data.photos import ImageTransform
from caption.data.shapes import Shapes
from caption.decoders import DeepOutput, Gate, ShowAttendAndTellDecoder
from caption.encoders import SmallCNN
from caption.search import BeamSearch, Greedy
from caption.training.module import CaptionTraining


def make_data(reader: Shapes, **options: Any) -> CaptionData:
    defaults: dict[str, Any] = {"batch_size": 8, "captions_per_image": 3, "min_count": 1}
    return CaptionData(reader, ImageTransform(48, "squash"), **defaults | options)


def make_training(data: CaptionData, alignment: Alignment | None = None, **options: Any) -> CaptionTraining:
    score = AdditiveScore(8, previous_word=options.pop("previous_word", False))
    attention = ScoredAttention(score, alignment or Softmax())
    decoder = ShowAttendAndTellDecoder(attention, 8, 12, gate=Gate(), readout=DeepOutput(dropout=0.1))
    defaults: dict[str, Any] = {
        "encoder": SmallCNN((4, 4, 8)),
        "search": BeamSearch(2, max_length=10),
        "validation_search": Greedy(10),
        "decoder": decoder,
    }
    return CaptionTraining(vocabulary=data.vocabulary, transform=data.transform, **defaults | options)


def make_trainer(folder: Path, *callbacks: Callback, **options: Any) -> Trainer:
    quiet: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    defaults: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "num_sanity_val_steps": 0,
    }
    return Trainer(default_root_dir=folder, callbacks=list(callbacks), **quiet | defaults | options)


def fit(folder: Path, reader: Shapes, *callbacks: Callback, seed: int = 0, **options: Any) -> CaptionTraining:
    """Train with parts of `make_training` and, under other names, of the trainer."""
    for_trainer = ("max_epochs", "max_steps", "limit_val_batches", "precision", "gradient_clip_val")
    trainer = make_trainer(
        folder, *callbacks, **{name: options.pop(name) for name in for_trainer if name in options}
    )
    seed_everything(seed, verbose=False)
    data = make_data(reader, **options.pop("data", {}))
    training = make_training(data, **options)
    trainer.fit(training, data)
    return training


def weights(module: nn.Module) -> dict[str, Tensor]:
    return copy.deepcopy(module.state_dict())


def differing(one: dict[str, Tensor], other: dict[str, Tensor]) -> set[str]:
    assert one.keys() == other.keys()
    return {name for name in one if not torch.equal(one[name], other[name])}


class Watch(Callback):
    """Records a value of the module at each call of a hook."""

    def __init__(self, value: Any, hook: str = "on_train_batch_start") -> None:
        self.seen: list[Any] = []
        setattr(self, hook, lambda trainer, module, *args: self.seen.append(value(module, *args)))
