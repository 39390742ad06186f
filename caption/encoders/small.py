"""A small CNN that trains from scratch in minutes, for Shapes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from caption.encoders.base import Encoder


class SmallCNN(Encoder):
    """4x4 convolutions of stride 2, then one 1x1 convolution, all with BatchNorm and ReLU.

    With four widths, 64 pixels become 8x8 regions whose receptive field is 22 pixels wide, an object's size, and
    centred on the cell, so that attention has to look at an object to know what it is. Two input channels hold
    the pixel's coordinates (Liu et al. 2018, "CoordConv"): a region vector says where it is, which words for
    relations need.

    Args:
        widths: output channels of the convolutions; the last is the length of a region vector.
    """

    def __init__(self, widths: Sequence[int] = (32, 64, 128, 128)) -> None:
        super().__init__()
        *halving, last = widths
        layers: list[nn.Module] = []
        inputs = 5
        for width in halving:
            layers += [
                nn.Conv2d(inputs, width, 4, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
            ]
            inputs = width
        layers += [nn.Conv2d(inputs, last, 1, bias=False), nn.BatchNorm2d(last), nn.ReLU()]
        self.layers = nn.Sequential(*layers)
        self.region_size = last

    def normalise(self, images: Tensor) -> Tensor:
        return images / 127.5 - 1

    def features(self, images: Tensor) -> Tensor:
        batch, _, height, width = images.shape
        down = torch.linspace(-1, 1, height, device=images.device, dtype=images.dtype)
        across = torch.linspace(-1, 1, width, device=images.device, dtype=images.dtype)
        places = torch.stack(torch.meshgrid(down, across, indexing="ij")).expand(batch, 2, height, width)
        return self.layers(torch.cat((images, places), 1))
