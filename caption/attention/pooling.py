"""Pooling baselines without attention: the regions are pooled to one vector, the same at every word.

The query is ignored. The map shows how much each region contributes: evenly for the mean and the sum; for maxima, the
share of the features whose maximum is in the region.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, ReadOutput, WeighOutput
from caption.errors import UserError
from caption.regions import Views, WeightProperties
from caption.tensor_tree import TensorTree


class Pooling(Attention):
    """Base class of poolings over all regions. Subclasses define the contribution of each region and the pooled vector.

    An edited map is read in the same way: regions of weight 0 are treated as absent.
    """

    def contribution(self, values: Tensor, real: Tensor) -> Tensor:
        """Regions (B, L, D), real (B, L) bool -> weights (B, L); masked regions are set to 0 afterwards."""
        raise NotImplementedError

    def pool(self, values: Tensor, weights: Tensor) -> Tensor:
        """Regions (B, 1, L, D), weights (B, K, L) -> context (B, K, context size)."""
        raise NotImplementedError

    def memory(self, views: Views) -> GridMemory:
        """The keys are the weights (B, L), 0 where masked, which depend on the image alone."""
        values, _, mask = views[0]
        real = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device) if mask is None else mask
        return GridMemory.of(views[0], self.contribution(values, real).masked_fill(~real, 0.0))

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        return WeighOutput(memory.keys[:, None].expand(-1, query.hidden.shape[1], -1))

    def read(
        self, maps: Tensor, query: Query, memory: GridMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        if weighed is not None and maps is weighed.maps:  # the same for all queries, so pooled once
            pooled = self.pool(memory.values[:, None], memory.keys[:, None])
            return ReadOutput(pooled.expand(-1, maps.shape[1], -1))
        return ReadOutput(self.pool(memory.values[:, None], maps.to(memory.values.dtype)))


class MeanPooling(Pooling):
    """z = 1/L Σ_i a_i."""

    def contribution(self, values: Tensor, real: Tensor) -> Tensor:
        return real / real.sum(-1, keepdim=True).to(values.dtype)

    def pool(self, values: Tensor, weights: Tensor) -> Tensor:
        return weights @ values.squeeze(1)


class SumPooling(MeanPooling):
    """z = Σ_i a_i, which grows with the number of regions."""

    properties = WeightProperties(sums_to_one=False)

    def contribution(self, values: Tensor, real: Tensor) -> Tensor:
        return real.to(values.dtype)


class DeepSets(SumPooling):
    """z = ρ(Σ_i φ(a_i)) with networks φ and ρ (Zaheer et al. 2017, theorem 2).

    Args:
        size: width of φ and of the hidden layer of ρ.
    """

    def __init__(self, size: int = 256) -> None:
        super().__init__()
        self.size = size

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.inner = nn.Sequential(nn.Linear(region_sizes[0], self.size), nn.ReLU())
        self.outer = nn.Sequential(
            nn.Linear(self.size, self.size), nn.ReLU(), nn.Linear(self.size, region_sizes[0])
        )

    def pool(self, values: Tensor, weights: Tensor) -> Tensor:
        return self.outer(super().pool(self.inner(values), weights))


class LargestPooling(Pooling):
    """Base class of poolings that read the largest values of each feature."""

    def contribution(self, values: Tensor, real: Tensor) -> Tensor:
        """The share of each region among the largest values of all features."""
        counts = self.counts(values.masked_fill(~real[..., None], -torch.inf)) * real
        return counts / counts.sum(-1, keepdim=True).to(values.dtype)

    def pool(self, values: Tensor, weights: Tensor) -> Tensor:
        return self.largest(values.masked_fill(weights[..., None] <= 0, -torch.inf))

    def counts(self, values: Tensor) -> Tensor:
        """Regions (B, L, D), -inf where masked -> (B, L), how many of the largest values each region has."""
        raise NotImplementedError

    def largest(self, values: Tensor) -> Tensor:
        """Regions (B, K, L, D), -inf where masked -> context (B, K, context size)."""
        raise NotImplementedError


class KMaxPooling(LargestPooling):
    """The mean of the k largest values of each feature; k = 1 is max pooling (Kalchbrenner et al. 2014, section 3.2).

    The order of the k regions is not kept.

    Args:
        k: the number of values; all, if there are fewer regions.

    Raises:
        UserError: k is below 1.
    """

    def __init__(self, k: int = 3) -> None:
        super().__init__()
        if k < 1:
            raise UserError(f"k {k} of k-max pooling must be at least 1")
        self.k = k

    def counts(self, values: Tensor) -> Tensor:
        indices = values.topk(min(self.k, values.shape[1]), 1).indices  # (B, k, D)
        return functional.one_hot(indices, values.shape[1]).sum((1, 2))

    def largest(self, values: Tensor) -> Tensor:
        largest = values.topk(min(self.k, values.shape[2]), 2).values
        finite = largest > -torch.inf
        return largest.where(finite, 0.0).sum(2) / finite.sum(2).clamp_min(1)


class MaxPooling(KMaxPooling):
    """z_d = max_i a_i,d."""

    def __init__(self) -> None:
        super().__init__(k=1)


class ChunkMaxPooling(LargestPooling):
    """The maxima of several chunks of the regions, concatenated, which keep rough positions.

    Chunks are runs of regions in row order, that is, bands of rows (Chen et al. 2015, dynamic multi-pooling, with fixed
    chunks).

    Args:
        chunks: C; the context has C · D numbers, 0 for chunks beyond the number of regions.

    Raises:
        UserError: `chunks` is below 1.
    """

    def __init__(self, chunks: int = 4) -> None:
        super().__init__()
        if chunks < 1:
            raise UserError(f"chunks {chunks} of chunk-max pooling must be at least 1")
        self.chunks = chunks

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = self.chunks * region_sizes[0]

    def counts(self, values: Tensor) -> Tensor:
        chunks = [chunk for chunk in values.tensor_split(self.chunks, 1) if chunk.shape[1]]
        return torch.cat([functional.one_hot(chunk.argmax(1), chunk.shape[1]).sum(1) for chunk in chunks], 1)

    def largest(self, values: Tensor) -> Tensor:
        missing = max(0, self.chunks - values.shape[2])
        padded = functional.pad(values, (0, 0, 0, missing), value=-torch.inf) if missing else values
        largest = torch.cat([chunk.amax(2) for chunk in padded.tensor_split(self.chunks, 2)], -1)
        return largest.where(largest > -torch.inf, 0.0)


class StochasticPooling(Pooling):
    """Stochastic pooling: in training, each feature comes from one region, sampled with p_i,d = a_i,d / Σ_j a_j,d
    (Zeiler and Fergus 2013).

    In evaluation it is the expectation Σ_i p_i,d a_i,d. For regions of at least 0, such as those behind a ReLU;
    negative values count as 0. A feature that is 0 everywhere stays 0. The map is the mean of p over the other
    features.
    """

    def contribution(self, values: Tensor, real: Tensor) -> Tensor:
        total = self._chances(values, real).sum(-1)
        features = total.sum(-1, keepdim=True)  # those that are above 0 somewhere
        return torch.where(features > 0, total / features.clamp_min(1), real / real.sum(-1, keepdim=True))

    @staticmethod
    def _chances(values: Tensor, real: Tensor) -> Tensor:
        """(..., L, D) p, from real (..., L)."""
        positive = values.clamp_min(0) * real[..., None]
        return positive / positive.sum(-2, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)

    def pool(self, values: Tensor, weights: Tensor) -> Tensor:
        chances = self._chances(values, weights > 0)  # (B, K, L, D)
        if not self.training:
            return (chances * values).sum(2)
        flat = chances.detach().transpose(2, 3).flatten(0, -2)
        empty = flat.sum(-1) <= 0
        drawn = flat.masked_fill(empty[:, None], 1.0).multinomial(1)
        indices = drawn.view(*chances.shape[:2], 1, chances.shape[3])
        samples = values.expand_as(chances).gather(2, indices).squeeze(2)
        return samples.masked_fill(empty.view(samples.shape), 0.0)
