"""Encoders: from pixels to a grid of region vectors."""

from caption.encoders.base import Encoder, Regions
from caption.encoders.pretrained import TorchvisionEncoder
from caption.encoders.refine import LinearRefiner, Refiner
from caption.encoders.small import SmallCNN

__all__ = ["Encoder", "LinearRefiner", "Refiner", "Regions", "SmallCNN", "TorchvisionEncoder"]
