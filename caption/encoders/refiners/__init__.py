"""Refiners, which map regions to regions between the encoder and the decoder, one per file.

They are trained with the decoder. `Refiners` applies several in order.
"""

from caption.encoders.refiners.base import Refiner, Refiners
from caption.encoders.refiners.cbam import CBAMRefiner
from caption.encoders.refiners.cross_attention import CrossAttentionRefiner
from caption.encoders.refiners.dual_attention import DualAttentionRefiner
from caption.encoders.refiners.linear import LinearRefiner
from caption.encoders.refiners.meta_embedding import MetaEmbeddingRefiner
from caption.encoders.refiners.positions import (
    LearnedPositions,
    Positions,
    RelativePositions,
    SinusoidalPositions,
)
from caption.encoders.refiners.pyramid import PyramidRefiner
from caption.encoders.refiners.self_attention import SelfAttentionRefiner
from caption.encoders.refiners.squeeze_excitation import SqueezeExcitationRefiner

__all__ = [
    "CBAMRefiner",
    "CrossAttentionRefiner",
    "DualAttentionRefiner",
    "LearnedPositions",
    "LinearRefiner",
    "MetaEmbeddingRefiner",
    "Positions",
    "PyramidRefiner",
    "Refiner",
    "Refiners",
    "RelativePositions",
    "SelfAttentionRefiner",
    "SinusoidalPositions",
    "SqueezeExcitationRefiner",
]
