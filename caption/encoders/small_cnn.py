"""A small CNN for the Shapes dataset, which trains from scratch in minutes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.options import at_least_one
from caption.core.errors import CheckpointError, UserError, reported_as
from caption.encoders.base import Encoder
from caption.encoders.weights import read_state, weights_file


class Dilated(nn.Conv2d):
    """A dilated convolution without stride, padded so that the output has the input's size.

    At every `dilation`-th position, it equals a convolution with padding (k − 1) // 2 on every `dilation`-th input.
    """

    def forward(self, maps: Tensor) -> Tensor:
        before = self.dilation[0] * ((self.kernel_size[0] - 1) // 2)
        after = self.dilation[0] * (self.kernel_size[0] - 1) - before
        return super().forward(functional.pad(maps, (before, after, before, after)))


class SmallCNN(Encoder):
    """A CNN of 4x4 convolutions with stride 2 and a final 3x3 one, each with BatchNorm and ReLU.

    With four widths, 64 pixels become 8x8 regions whose receptive field is 38 pixels wide and centred on the cell, so
    it covers a whole object at any position. Two input channels contain the pixel's coordinates (Liu et al. 2018,
    "CoordConv"), so that region vectors encode their position, which words for spatial relations need.

    Args:
        widths: output channels of the convolutions, at least two; the last is the length of a region vector.
        views: number of grids, for attention that takes several. Each further grid is the previous one averaged to half
            the resolution: 8x8, 4x4, ...
        stride: pixels between neighbouring regions of the first view; None = 2^(n - 1) for n widths. A smaller power of
            two gives a finer grid with the same weights and receptive fields: the later convolutions are dilated
            instead of strided (Chen et al. 2017, "DeepLab", section 3.1). The finer grid contains the regions of the
            coarse one.
        weights: the initial weights: a checkpoint or another file that `caption.encoders.weights` reads, such as
            `caption.models:shapes.ckpt`; None = random weights.
        kernels: sides of the convolutions; None = 4, ..., 4, 3. A region's receptive field is 1 + Σ_i 2^i (k_i − 1)
            pixels wide, i = 0, ..., n - 1: (3, 2, 2, 1) gives 9 pixels, (3, 2, 4, 1) 17, (3, 2, 4, 3) 33. It is centred
            on the region's cell if the kernels with stride 2 are even and the others odd.

    Raises:
        UserError: there are fewer than two widths; a width, a kernel or `views` is below 1; there are not as many
            `kernels` as widths; `stride` is not a power of two up to 2^(n - 1).
    """

    fixed_graph = True

    def __init__(
        self,
        widths: Sequence[int] = (32, 64, 128, 128),
        views: int = 1,
        stride: int | None = None,
        weights: str | None = None,
        kernels: Sequence[int] | None = None,
    ) -> None:
        super().__init__()
        if len(widths) < 2 or min(widths) < 1:
            raise UserError(f"widths {[*widths]} of SmallCNN must be two or more numbers, each at least 1")
        at_least_one(self, views=views)
        sides = [4] * (len(widths) - 1) + [3] if kernels is None else [*kernels]
        if len(sides) != len(widths) or min(sides) < 1:
            raise UserError(
                f"kernels {sides} of SmallCNN must be {len(widths)} numbers, one for each of its widths"
            )
        strides = [2**position for position in range(len(widths))]
        if stride is not None and stride not in strides:
            raise UserError(f"stride {stride} of SmallCNN must be one of {', '.join(map(str, strides))}")
        layers: list[nn.Module] = []
        inputs, total_stride = 5, stride or strides[-1]
        for position, (width, kernel) in enumerate(zip(widths, sides, strict=True)):
            step = 1 if position == len(widths) - 1 else 2
            if strides[position] < total_stride or (step == 1 and total_stride == strides[-1]):
                padding = (kernel - 1) // 2
                convolution = nn.Conv2d(inputs, width, kernel, step, padding, bias=False)
            else:
                dilation = strides[position] // total_stride
                convolution = Dilated(inputs, width, kernel, dilation=dilation, bias=False)
            layers += [convolution, nn.BatchNorm2d(width), nn.ReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers)
        self.views = views
        self.weights = weights
        self.region_sizes = (inputs,) * views

    def load_pretrained(self) -> None:
        if self.weights is None:
            return
        state = read_state(weights_file(self.weights, self.trust) or Path(self.weights))
        with reported_as(CheckpointError, f"{self.weights} is not for this SmallCNN", RuntimeError):
            self.load_state_dict(state)

    def normalise(self, images: Tensor) -> Tensor:
        return images / 127.5 - 1

    def features(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        batch, _, height, width = images.shape
        down = torch.linspace(-1, 1, height, device=images.device, dtype=images.dtype)
        across = torch.linspace(-1, 1, width, device=images.device, dtype=images.dtype)
        coordinates = torch.stack(torch.meshgrid(down, across, indexing="ij")).expand(batch, 2, height, width)
        # Convolutions on CPUs take less time in this layout, and the regions are read in it.
        pixels = torch.cat((images, coordinates), 1).contiguous(memory_format=torch.channels_last)
        grids = [self.layers(pixels)]
        for _ in range(self.views - 1):
            rows, cols = grids[-1].shape[2:]
            half = (-(-rows // 2), -(-cols // 2))  # an odd side keeps its last cell
            grids.append(functional.adaptive_avg_pool2d(grids[-1], half))
        return tuple(grids) if self.views > 1 else grids[0]
