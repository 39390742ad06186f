"""A small CNN for the Shapes dataset, which trains from scratch in minutes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from caption.encoders.base import Encoder


class SmallCNN(Encoder):
    """A CNN of 4x4 convolutions with stride 2 and a final 3x3 one, each with BatchNorm and ReLU.

    With four widths, 64 pixels become 8x8 regions whose receptive field is 38 pixels wide and centred on the cell, so
    it covers a whole object at any position. Two input channels hold the pixel's coordinates (Liu et al. 2018,
    "CoordConv"): region vectors encode their position, which words for spatial relations need.

    Args:
        widths: output channels of the convolutions, at least two; the last is the length of a region vector.
    """

    def __init__(self, widths: Sequence[int] = (32, 64, 128, 128)) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 5
        for position, width in enumerate(widths):
            kernel, stride = (3, 1) if position == len(widths) - 1 else (4, 2)
            convolution = nn.Conv2d(inputs, width, kernel, stride, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers)
        self.region_sizes = (inputs,)

    def normalise(self, images: Tensor) -> Tensor:
        return images / 127.5 - 1

    def features(self, images: Tensor) -> Tensor:
        batch, _, height, width = images.shape
        down = torch.linspace(-1, 1, height, device=images.device, dtype=images.dtype)
        across = torch.linspace(-1, 1, width, device=images.device, dtype=images.dtype)
        places = torch.stack(torch.meshgrid(down, across, indexing="ij")).expand(batch, 2, height, width)
        return self.layers(torch.cat((images, places), 1))
