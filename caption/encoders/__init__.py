"""Encoders, which turn images into grids of region vectors, and refiners, which map regions to regions."""

from caption.encoders.base import Encoder
from caption.encoders.efficientnet_lite import EfficientNetLite
from caption.encoders.refiners import (
    CBAMRefiner,
    CrossAttentionRefiner,
    DualAttentionRefiner,
    LearnedPositions,
    LinearRefiner,
    MetaEmbeddingRefiner,
    Positions,
    PyramidRefiner,
    Refiner,
    Refiners,
    RelativePositions,
    SelfAttentionRefiner,
    SinusoidalPositions,
    SqueezeExcitationRefiner,
)
from caption.encoders.several_encoders import SeveralEncoders
from caption.encoders.small_cnn import SmallCNN
from caption.encoders.timm import TimmEncoder
from caption.encoders.torchvision import TorchvisionEncoder

__all__ = [
    "CBAMRefiner",
    "CrossAttentionRefiner",
    "DualAttentionRefiner",
    "EfficientNetLite",
    "Encoder",
    "LearnedPositions",
    "LinearRefiner",
    "MetaEmbeddingRefiner",
    "Positions",
    "PyramidRefiner",
    "Refiner",
    "Refiners",
    "RelativePositions",
    "SelfAttentionRefiner",
    "SeveralEncoders",
    "SinusoidalPositions",
    "SmallCNN",
    "SqueezeExcitationRefiner",
    "TimmEncoder",
    "TorchvisionEncoder",
]
