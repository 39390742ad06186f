"""Encoders, which turn images into grids of region vectors, and refiners, which map regions to regions."""

from caption.encoders.base import Encoder
from caption.encoders.efficientnet_lite import EfficientNetLite
from caption.encoders.refiners.base import Refiner, Refiners
from caption.encoders.refiners.cbam import CBAMRefiner
from caption.encoders.refiners.cross_attention import CrossAttentionRefiner
from caption.encoders.refiners.dual_attention import DualAttentionRefiner
from caption.encoders.refiners.feature_pyramid import FeaturePyramidRefiner
from caption.encoders.refiners.linear import LinearRefiner
from caption.encoders.refiners.meta_embedding import ConcatenationRefiner, MetaEmbeddingRefiner
from caption.encoders.refiners.plain_self_attention import PlainSelfAttentionRefiner
from caption.encoders.refiners.positions import (
    LearnedPositions,
    Positions,
    RelativeBias,
    RelativeVectors,
    SinusoidalPositions,
)
from caption.encoders.refiners.self_attention import SelfAttentionRefiner
from caption.encoders.refiners.squeeze_excitation import SqueezeExcitationRefiner
from caption.encoders.refiners.transformer import TransformerRefiner
from caption.encoders.several_encoders import SeveralEncoders
from caption.encoders.small_cnn import SmallCNN
from caption.encoders.timm import TimmEncoder
from caption.encoders.torchvision import TorchvisionEncoder

__all__ = [
    "CBAMRefiner",
    "ConcatenationRefiner",
    "CrossAttentionRefiner",
    "DualAttentionRefiner",
    "EfficientNetLite",
    "Encoder",
    "FeaturePyramidRefiner",
    "LearnedPositions",
    "LinearRefiner",
    "MetaEmbeddingRefiner",
    "PlainSelfAttentionRefiner",
    "Positions",
    "Refiner",
    "Refiners",
    "RelativeBias",
    "RelativeVectors",
    "SelfAttentionRefiner",
    "SeveralEncoders",
    "SinusoidalPositions",
    "SmallCNN",
    "SqueezeExcitationRefiner",
    "TimmEncoder",
    "TorchvisionEncoder",
    "TransformerRefiner",
]
