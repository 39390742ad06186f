"""Encoders: from pixels to grids of region vectors; refiners: from regions to regions."""

from caption.encoders.base import Encoder
from caption.encoders.refiners import LinearRefiner, Refiner
from caption.encoders.small import SmallCNN
from caption.encoders.torchvision import TorchvisionEncoder

__all__ = ["Encoder", "LinearRefiner", "Refiner", "SmallCNN", "TorchvisionEncoder"]
