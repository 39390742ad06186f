"""Lenses made by hand, one of them for the encoder of `helpers.tiny_captioner`, whose six classes are six nouns."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.analysis.lens import Calibration, Lens
from caption.encoders.classifier import Classifier
from caption.text.nouns import Nouns

NOUNS = ("cat", "dog", "saxophone", "cup", "boat", "bicycle")


def hand_lens(
    nouns: Nouns, weight: Tensor, calibration: Calibration | None = None, bias: float = 0.0
) -> Lens:
    """With a classifier's weights (classes, D); class number n has n times the bias."""
    linear = nn.Linear(weight.shape[1], weight.shape[0])
    linear.load_state_dict({"weight": weight, "bias": bias * torch.arange(len(weight))})
    return Lens(Classifier(linear), nouns, calibration)


def tiny_lens() -> Lens:
    """With fixed random weights, so large that most regions are surely one thing."""
    others = {"saxophone": ["sax"]}
    # The classifier's own probabilities, and surer ones for regions alone.
    calibration = Calibration((1.0, 0.0, 0.0, 0.0, 0.0), of_regions=(3.0, 0.0, 0.0), sharpest=0.01)
    nouns = Nouns([(noun, noun) for noun in NOUNS], [(noun, "", others.get(noun, [])) for noun in NOUNS])
    return hand_lens(
        nouns, 40 * torch.randn(len(NOUNS), 6, generator=torch.Generator().manual_seed(3)), calibration
    )
