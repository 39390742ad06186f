"""A captioner small enough to be created in every test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from caption.attention import AdditiveScore, Alignment, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.data.photos import ImageTransform
from caption.decoders import Gate, ShowAttendAndTellDecoder
from caption.encoders import SmallCNN
from caption.search import BeamSearch, Search
from caption.text.vocabulary import Vocabulary

WORDS = ("a", "cat", "dog", "sits", "runs")


def captioner(
    transform: ImageTransform | None = None,
    search: Search | None = None,
    alignment: Alignment | None = None,
    **parts: Any,
) -> Captioner:
    """A captioner with fixed random weights, large enough for captions of several words; 8x8 regions of 32 pixels."""
    torch.manual_seed(0)
    attention = ScoredAttention(AdditiveScore(8), alignment or Softmax())
    decoder = ShowAttendAndTellDecoder(attention, embedding_size=6, hidden_size=7, gate=Gate())
    model = Captioner(
        encoder=parts.pop("encoder", None) or SmallCNN((4, 4, 6)),
        decoder=parts.pop("decoder", decoder),
        vocabulary=Vocabulary(WORDS),
        transform=transform or ImageTransform(32, "crop"),
        search=search or BeamSearch(beam_size=3, max_length=8),
        **parts,
    )
    with torch.no_grad():
        for name, parameter in model.decoder.named_parameters():
            parameter.mul_(1.0 if "bias" in name else 3.0)
            if name.endswith("to_words.bias"):
                parameter[2] = -2.0  # so that the end token is not the first word
    return model.eval()


def rewrite(path: Path, change: Callable[[dict[str, Any]], object], out: Path | None = None) -> Path:
    """Change what is in a checkpoint, in its place or in the file `out`."""
    contents = torch.load(path, weights_only=True)
    change(contents)
    torch.save(contents, out or path)
    return out or path


def photo(width: int = 80, height: int = 40, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize((width, height), Image.Resampling.NEAREST)
