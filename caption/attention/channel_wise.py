"""Channels and regions weighted by the decoder's state (Chen et al. 2017, "SCA-CNN: Spatial and Channel-wise Attention
in Convolutional Networks for Image Captioning"), at the encoder's last layer.

β_c = softmax_c(w · tanh(u v_c + W h + b)) is a distribution over the D channels of the region vectors, which are the
feature maps of a CNN; v_c is the mean of channel c (section 3.2). All channels share u, w, W and b, so they differ only
by their means. α is the spatial attention of section 3.1, and either may come first (section 3.3). The context is
z_c = D β_c Σ_i α_i a_i,c. The factor D is in the authors' code, but not in the paper's text; with it, uniform weights
keep the scale of the vectors.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.maps import hide_masked, weighted_sum
from caption.attention.scored import Score, build_stateless, score_each
from caption.core.regions import Views, mean_region
from caption.core.tensor_tree import TensorTree


class ChannelMaps(NamedTuple):
    """Weights of regions and of channels."""

    regions: Tensor
    """(B, K, L) α, sums to one."""
    channels: Tensor
    """(B, K, D) β, sums to one."""


class ChannelScore(nn.Module):
    """β_c = softmax_c(w · tanh(u v_c + W h + b)) for channels with means v.

    Args:
        size: length of w and u.
        hidden_size: H.
    """

    def __init__(self, size: int, hidden_size: int) -> None:
        super().__init__()
        self.channel = nn.Linear(1, size)
        self.query = nn.Linear(hidden_size, size, bias=False)
        self.energy = nn.Linear(size, 1, bias=False)

    def forward(self, means: Tensor, hidden: Tensor) -> Tensor:
        """v (B, K or 1, D), h (B, K, H) -> β (B, K, D)."""
        pairs = (self.channel(means[..., None]) + self.query(hidden)[:, :, None]).tanh()
        return self.energy(pairs).squeeze(-1).softmax(-1)


class _ChannelAttention(Attention):
    """Base class of both orders."""

    map_views = {"regions": 0}

    def __init__(self, score: Score, size: int = 256) -> None:
        super().__init__()
        self.score = score
        self.size = size

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        build_stateless(self, self.score, region_sizes[0], query_sizes)
        self.channels = ChannelScore(self.size, query_sizes.hidden)

    def context(self, maps: ChannelMaps, query: Query, memory: GridMemory) -> Tensor:
        context = weighted_sum(maps.regions, memory.values)
        return context * scaled(maps.channels).to(context.dtype)


class ChannelSpatialAttention(_ChannelAttention):
    """β from h and the mean of each channel; then α from h and the regions weighted by it, D β ∘ a_i ("C-S").

    The score compares the query with other regions at every step, so it computes their keys once per step, not once per
    image.

    Args:
        score: of α; the paper's is `AdditiveScore`. It must not keep a state from word to word.
        size: width of the comparison for β.
    """

    def memory(self, views: Views) -> GridMemory:
        """The regions; in the place of keys the mean v (B, 1, D) of each channel."""
        return GridMemory.of(views[0], mean_region(views[0]))

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        means, values, mask, grid = memory
        channels = self.channels(means, query.hidden)
        vectors = values[:, None] * scaled(channels)[:, :, None].to(values.dtype)
        weights = hide_masked(score_each(self.score, query, vectors, grid), mask).softmax(-1)
        return WeighOutput(ChannelMaps(weights, channels))


class SpatialChannelAttention(_ChannelAttention):
    """α from h and the regions; then β from h and the mean of each channel under α, v = Σ_i α_i a_i ("S-C").

    Args:
        score: of α; the paper's is `AdditiveScore`. It must not keep a state from word to word.
        size: width of the comparison for β.
    """

    def memory(self, views: Views) -> GridMemory:
        return GridMemory.of(views[0], self.score.keys(views[0]))

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        weights = hide_masked(self.score(query, memory), memory.mask).softmax(-1)
        means = weighted_sum(weights, memory.values)
        return WeighOutput(ChannelMaps(weights, self.channels(means, query.hidden)))


def scaled(channels: Tensor) -> Tensor:
    """D β: 1 for uniform weights."""
    return channels * channels.shape[-1]
