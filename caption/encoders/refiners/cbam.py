"""The convolutional block attention module (CBAM): weights for channels, then for regions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.attention.options import at_least_one
from caption.core.errors import UserError
from caption.core.regions import Regions, mean_region
from caption.encoders.refiners.base import EachView, to_map, to_vectors
from caption.encoders.refiners.squeeze_excitation import bottleneck


class CBAMRefiner(EachView):
    """c = σ(MLP(mean_i a_i) + MLP(max_i a_i)), a'_i = c ⊙ a_i; s = σ(f([mean_d a'_id; max_d a'_id])), a''_i = s_i a'_i.

    Woo et al. 2018, "CBAM: Convolutional Block Attention Module", eqs. 1 to 3. The MLP has one hidden layer of D/r
    units with ReLU, and no bias; f is a convolution over the grid, with a bias in place of the batch normalisation of
    the authors' code. Masked regions are 0 in the convolution, like the padding outside the image. Each view has its
    own weights.

    Args:
        reduction: r.
        kernel: width and height of f in regions, an odd number.

    Raises:
        UserError: `reduction` is below 1, or `kernel` is not odd.
    """

    def __init__(self, reduction: int = 16, kernel: int = 7) -> None:
        super().__init__()
        at_least_one(self, reduction=reduction)
        if kernel < 1 or kernel % 2 == 0:
            raise UserError(f"kernel {kernel} of CBAMRefiner must be an odd number, so that it has a centre")
        self.reduction = reduction
        self.kernel = kernel

    def layers(self, region_size: int) -> nn.Module:
        return _ChannelThenSpace(bottleneck(region_size, self.reduction), self.kernel)


class _ChannelThenSpace(nn.Module):
    def __init__(self, channels: nn.Module, kernel: int) -> None:
        super().__init__()
        self.channels = channels
        self.space = nn.Conv2d(2, 1, kernel, padding=kernel // 2)

    def forward(self, regions: Regions) -> Tensor:
        vectors, mask = regions.vectors, regions.mask
        real = vectors if mask is None else vectors.masked_fill(~mask[..., None], -torch.inf)
        channel = (self.channels(mean_region(regions)) + self.channels(real.amax(1, keepdim=True))).sigmoid()
        vectors = channel * vectors  # still zero where masked
        pooled = torch.stack((vectors.mean(-1), vectors.amax(-1)), -1)  # (B, L, 2)
        space = to_vectors(self.space(to_map(pooled, regions.grid))).sigmoid()
        return space * vectors
