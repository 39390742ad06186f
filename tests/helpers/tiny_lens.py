"""A lens for the encoder of `helpers.tiny_captioner`, whose six classes are six nouns."""

from __future__ import annotations

import torch
from torch import nn

from caption.analysis.lens import Calibration, Lens
from caption.encoders.classifier import Classifier
from caption.text.nouns import Nouns

NOUNS = ("cat", "dog", "saxophone", "cup", "boat", "bicycle")


def tiny_lens() -> Lens:
    """With fixed random weights, so large that most regions are surely one thing."""
    generator = torch.Generator().manual_seed(3)
    linear = nn.Linear(6, len(NOUNS))
    with torch.no_grad():
        linear.weight.copy_(40 * torch.randn(len(NOUNS), 6, generator=generator))
        linear.bias.zero_()
    others = {"saxophone": ["sax"]}
    # The classifier's own probabilities, and surer ones for regions alone.
    calibration = Calibration((1.0, 0.0, 0.0, 0.0, 0.0), of_regions=(3.0, 0.0, 0.0), sharpest=0.01)
    return Lens(
        Classifier(linear),
        Nouns([(noun, noun) for noun in NOUNS], [(noun, "", others.get(noun, [])) for noun in NOUNS]),
        calibration,
    )
