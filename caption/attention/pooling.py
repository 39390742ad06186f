"""Pooling baselines without attention: the regions are pooled to one vector, the same at every word.

The query is ignored. The map shows how much each region contributes: evenly for the mean and the sum; for maxima, the
share of the features whose maximum is in the region.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, ReadOutput, WeighOutput
from caption.attention.maps import categorical
from caption.attention.options import at_least_one, fits_side
from caption.core.errors import UserError
from caption.core.regions import Grid, Views, WeightProperties
from caption.core.tensor_tree import TensorTree


class Pooling(Attention):
    """Base class of poolings over all regions. Subclasses define the contribution of each region and the pooled vector.

    An edited map is read in the same way: regions of weight 0 are left out.
    """

    def contribution(self, values: Tensor, real: Tensor, grid: Grid) -> Tensor:
        """Regions (B, L, D) on a grid, real (B, L) bool -> weights (B, L); masked regions are set to 0 afterwards."""
        raise NotImplementedError

    def pool(self, values: Tensor, weights: Tensor, grid: Grid) -> Tensor:
        """Regions (B, 1, L, D), weights (B, K, L) -> context (B, K, context size)."""
        raise NotImplementedError

    def memory(self, views: Views) -> GridMemory:
        """The keys are the weights (B, L), 0 where masked, which depend on the image alone."""
        values, grid, mask = views[0]
        real = torch.ones(values.shape[:2], dtype=torch.bool, device=values.device) if mask is None else mask
        return GridMemory.of(views[0], self.contribution(values, real, grid).masked_fill(~real, 0.0))

    def weigh(self, query: Query, memory: GridMemory, state: TensorTree) -> WeighOutput:
        return WeighOutput(memory.keys[:, None].expand(-1, query.hidden.shape[1], -1))

    def read(
        self, maps: Tensor, query: Query, memory: GridMemory, weighed: WeighOutput | None = None
    ) -> ReadOutput:
        if weighed is not None and maps is weighed.maps:  # the same for all queries: pool once
            pooled = self.pool(memory.values[:, None], memory.keys[:, None], memory.grid)
            return ReadOutput(pooled.expand(-1, maps.shape[1], -1))
        return ReadOutput(self.pool(memory.values[:, None], maps.to(memory.values.dtype), memory.grid))


class MeanPooling(Pooling):
    """z = 1/L Σ_i a_i."""

    def contribution(self, values: Tensor, real: Tensor, grid: Grid) -> Tensor:
        return real / real.sum(-1, keepdim=True).to(values.dtype)

    def pool(self, values: Tensor, weights: Tensor, grid: Grid) -> Tensor:
        return weights @ values.squeeze(1)


class FixedMap(MeanPooling):
    """z = Σ_i α_i a_i with α = softmax(b), one learned map for all images and words.

    A control of attention: it can prefer parts of the grid, but depends neither on the image nor on the word.

    Args:
        side: rows and columns of the largest grid; a smaller grid uses the upper left part of the map.

    Raises:
        UserError: `side` is below 1; in use, the grid is larger.
    """

    def __init__(self, side: int = 16) -> None:
        super().__init__()
        at_least_one(self, side=side)
        self.side = side

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.bias = nn.Parameter(torch.zeros(self.side, self.side))

    def contribution(self, values: Tensor, real: Tensor, grid: Grid) -> Tensor:
        fits_side(self, self.side, grid)
        bias = self.bias[: grid[0], : grid[1]].flatten()
        return bias.expand_as(real).masked_fill(~real, -torch.inf).softmax(-1).to(values.dtype)


class NoContext(MeanPooling):
    """z = 0: words know of the image what the decoder's first state does, such as the mean region (`InitialState`).

    A control of reading the image before every word. The map is even, as in the first state, and edits of it have no
    effect.
    """

    def pool(self, values: Tensor, weights: Tensor, grid: Grid) -> Tensor:
        return values.new_zeros(*weights.shape[:2], values.shape[-1])


class SumPooling(MeanPooling):
    """z = Σ_i a_i, which grows with the number of regions."""

    properties = WeightProperties(sums_to_one=False)

    def contribution(self, values: Tensor, real: Tensor, grid: Grid) -> Tensor:
        return real.to(values.dtype)


class DeepSets(Pooling):
    """z = ρ(pool_i φ(a_i)) with networks φ and ρ: with the sum (Zaheer et al. 2017, theorem 2), or with the maximum (Qi
    et al. 2017, "PointNet", eq. 1).

    The map is that of the pooling, over the features of φ before its ReLU.

    Args:
        pooling: over all regions.
        size: width of φ and of the hidden layer of ρ.
    """

    def __init__(self, pooling: Pooling, size: int = 256) -> None:
        super().__init__()
        self.pooling = pooling
        self.size = size

    @property
    def properties(self) -> WeightProperties:  # type: ignore[override]
        """The properties of the pooling."""
        return self.pooling.properties

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.pooling.build((self.size,), query_sizes)
        self.inner = nn.Sequential(nn.Linear(region_sizes[0], self.size), nn.ReLU())
        self.outer = nn.Sequential(
            nn.Linear(self.pooling.context_size, self.size), nn.ReLU(), nn.Linear(self.size, region_sizes[0])
        )

    def contribution(self, values: Tensor, real: Tensor, grid: Grid) -> Tensor:
        affine = self.inner[0](values)  # before the ReLU, which would make all negative features equal
        return self.pooling.contribution(affine, real, grid)

    def pool(self, values: Tensor, weights: Tensor, grid: Grid) -> Tensor:
        return self.outer(self.pooling.pool(self.inner(values), weights, grid))


class LargestPooling(Pooling):
    """Base class of poolings that read the largest values of each feature."""

    def contribution(self, values: Tensor, real: Tensor, grid: Grid) -> Tensor:
        """The share of each region among the largest values of all features."""
        counts = self.counts(values.masked_fill(~real[..., None], -torch.inf)) * real
        return counts / counts.sum(-1, keepdim=True).to(values.dtype)

    def pool(self, values: Tensor, weights: Tensor, grid: Grid) -> Tensor:
        return self.largest(values.masked_fill(weights[..., None] <= 0, -torch.inf))

    def counts(self, values: Tensor) -> Tensor:
        """Regions (B, L, D), -inf where masked -> (B, L), the number of largest values in each region."""
        raise NotImplementedError

    def largest(self, values: Tensor) -> Tensor:
        """Regions (B, K, L, D), -inf where masked -> context (B, K, context size)."""
        raise NotImplementedError


def k_largest(values: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest values of each feature and their regions (..., k, D). Of equal values, the first are taken: `topk`
    does not define their order, and after a ReLU many values are 0.

    Args:
        values: (..., L, D), -inf where masked.
        k: at most L; with fewer real regions, the last values are -inf and their regions undefined.
    """
    remaining, regions, largest = values.detach(), [], []
    for _ in range(k):
        region = remaining.argmax(-2, keepdim=True)
        regions.append(region)
        largest.append(values.gather(-2, region).where(remaining.gather(-2, region) > -torch.inf, -torch.inf))
        remaining = remaining.scatter(-2, region, -torch.inf)
    return torch.cat(largest, -2), torch.cat(regions, -2)


class KLargestPooling(LargestPooling):
    """Base class of poolings that read the k largest values of each feature.

    Args:
        k: the number of values.

    Raises:
        UserError: k is below 1; in use, k is larger than the number of regions.
    """

    def __init__(self, k: int = 3) -> None:
        super().__init__()
        at_least_one(self, k=k)
        self.k = k

    def contribution(self, values: Tensor, real: Tensor, grid: Grid) -> Tensor:
        if self.k > values.shape[1]:
            raise UserError(
                f"k {self.k} of {type(self).__name__} is more than the {values.shape[1]} regions of an image: take a "
                "smaller k, or an encoder with a finer grid"
            )
        return super().contribution(values, real, grid)

    def counts(self, values: Tensor) -> Tensor:
        largest, regions = k_largest(values, self.k)  # (B, k, D)
        return (functional.one_hot(regions, values.shape[1]) * (largest > -torch.inf)[..., None]).sum((1, 2))


class KMaxPooling(KLargestPooling):
    """The k largest values of each feature, concatenated, in the order of their regions (Kalchbrenner et al. 2014,
    section 3.2).

    The context has k · D numbers: the first of the k values of each feature, then the second ... With fewer real
    regions, the last ones are 0.
    """

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        self.context_size = self.k * region_sizes[0]

    def largest(self, values: Tensor) -> Tensor:
        largest, regions = k_largest(values, self.k)  # (B, K, k, D)
        absent = largest == -torch.inf
        order = regions.masked_fill(absent, values.shape[2]).argsort(2)
        return largest.masked_fill(absent, 0.0).gather(2, order).flatten(2)


class MaxPooling(KMaxPooling):
    """z_d = max_i a_i,d."""

    def __init__(self) -> None:
        super().__init__(k=1)


class TopKMeanPooling(KLargestPooling):
    """The mean of the k largest values of each feature (Durand et al. 2017, "WILDCAT", section 3.3, without the lowest
    ones).

    With fewer real regions, the mean is over those.
    """

    def largest(self, values: Tensor) -> Tensor:
        largest, _ = k_largest(values, self.k)
        finite = largest > -torch.inf
        return largest.where(finite, 0.0).sum(2) / finite.sum(2).clamp_min(1)


class StochasticPooling(Pooling):
    """Stochastic pooling: in training, each feature comes from one region, sampled with p_i,d = a_i,d / Σ_j a_j,d
    (Zeiler and Fergus 2013).

    In evaluation, it is the expectation Σ_i p_i,d a_i,d. For nonnegative regions, such as the output of a ReLU;
    negative values have probability 0. A feature without a positive value is 0. The map is the mean of p over the other
    features.
    """

    def contribution(self, values: Tensor, real: Tensor, grid: Grid) -> Tensor:
        total = self._probabilities(values, real).sum(-1)
        features = total.sum(-1, keepdim=True)  # number of features with a positive value
        return torch.where(features > 0, total / features.clamp_min(1), real / real.sum(-1, keepdim=True))

    @staticmethod
    def _probabilities(values: Tensor, real: Tensor) -> Tensor:
        """(..., L, D) p, from real (..., L)."""
        positive = values.clamp_min(0) * real[..., None]
        return positive / positive.sum(-2, keepdim=True).clamp_min(torch.finfo(values.dtype).tiny)

    def pool(self, values: Tensor, weights: Tensor, grid: Grid) -> Tensor:
        probabilities = self._probabilities(values, weights > 0)  # (B, K, L, D)
        if not self.training:
            return (probabilities * values).sum(2)
        of_features = probabilities.detach().mT  # (B, K, D, L)
        empty = of_features.sum(-1) <= 0
        indices = categorical(of_features.masked_fill(empty[..., None], 1.0))
        samples = values.expand_as(probabilities).gather(2, indices[:, :, None]).squeeze(2)
        return samples.masked_fill(empty, 0.0)
