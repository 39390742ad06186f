"""Feed-forward attention (Raffel and Ellis 2015): a learned query, the same for every word and image."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from caption.attention.base import GridMemory, Query, QuerySizes
from caption.attention.maps import overlap
from caption.attention.options import at_least_one, fits_side, odd_kernel
from caption.attention.scored import Score
from caption.core.regions import Regions
from caption.core.tensor_tree import TensorTree


class LearnedQueryScore(Score):
    """e_i = q · a_i with a learned query q: feed-forward attention of one layer.

    The weights do not depend on the decoder's state, so they are the same at every word. They measure a region's
    overall relevance. The paper's own network bounds the scores: `BoundedLearnedQueryScore`.
    """

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.query = nn.Linear(region_size, 1, bias=False)

    def keys(self, regions: Regions) -> Tensor:
        """(B, 1, L) the scores themselves, which depend only on the image."""
        return self.query(regions.vectors).mT

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return memory.keys.expand(-1, query.hidden.shape[1], -1)


class BoundedLearnedQueryScore(LearnedQueryScore):
    """e_i = tanh(q · a_i + b), the network of Raffel and Ellis 2015, section 1.1.

    The scores are between -1 and 1, so with L regions no weight exceeds e² / (e² + L − 1).
    """

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.query = nn.Linear(region_size, 1)

    def keys(self, regions: Regions) -> Tensor:
        """(B, 1, L) the scores themselves."""
        return super().keys(regions).tanh()


class NeighbourhoodScore(LearnedQueryScore):
    """e_i = Σ_o q_o · a_{i + o}: a convolution over the grid, with a learned query for each offset o from a region.

    The local attention of D-Attn (Seo et al. 2017, "Interpretable Convolutional Neural Networks with Dual Local and
    Global Attention for Review Rating Prediction", section 3.1), with `Sigmoid` as its alignment and windows of cells
    in place of words. Vectors outside the grid and of masked regions are 0.

    Args:
        kernel: width and height of the window in cells, an odd number.

    Raises:
        UserError: the kernel is even.
    """

    def __init__(self, kernel: int = 5) -> None:
        super().__init__()
        odd_kernel(self, kernel)
        self.kernel = kernel

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.queries = nn.Conv2d(region_size, 1, self.kernel, padding=self.kernel // 2, bias=False)

    def keys(self, regions: Regions) -> Tensor:
        """(B, 1, L) the scores themselves."""
        return self.queries(_on_grid(regions)).flatten(2)


class WholeGridScore(LearnedQueryScore):
    """e = Σ_p q_p · a_p, one score for all regions, with a learned query for each place p of the grid.

    The global attention of D-Attn (Seo et al. 2017, section 3), with `Sigmoid` as its alignment: a convolution that
    covers the whole input decides how much of it is read, and prefers no part. `LocalGlobalAttention` joins it to
    `NeighbourhoodScore`. Under a softmax the score would cancel. Vectors of masked regions are 0.

    Args:
        side: rows and columns of the largest grid; a smaller grid uses the upper left queries.

    Raises:
        UserError: `side` is below 1; in use, the grid is larger.
    """

    def __init__(self, side: int = 16) -> None:
        super().__init__()
        at_least_one(self, side=side)
        self.side = side

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.queries = nn.Conv2d(region_size, 1, self.side, bias=False)

    def keys(self, regions: Regions) -> Tensor:
        """(B, 1, L) the scores themselves."""
        fits_side(self, self.side, regions.grid)
        rows, cols = regions.grid
        score = functional.conv2d(_on_grid(regions), self.queries.weight[..., :rows, :cols])
        return score.flatten(2).expand(-1, -1, rows * cols)


def _on_grid(regions: Regions) -> Tensor:
    """(B, D, rows, cols) the vectors, 0 where masked."""
    vectors = regions.vectors
    if regions.mask is not None:
        vectors = vectors.masked_fill(~regions.mask[..., None], 0.0)
    return vectors.mT.unflatten(-1, regions.grid)


class FeedForwardScore(LearnedQueryScore):
    """e_i = w · tanh(Q a_i + b): feed-forward attention of two layers.

    The rows of Q are S learned queries, and w combines their results into one score, and so one map;
    `StructuredAttention` has a map for each query. Scores are bounded by the learned w, as in `AdditiveScore`. The loss
    term `caption.objectives.AttentionPenalty` adds a penalty on similar queries, ‖Q Qᵀ − I‖²_F. It makes them
    orthogonal and of length 1, which is possible if S does not exceed the length of a region.

    Args:
        size: S.
        bias: whether to add b.
    """

    def __init__(self, size: int = 512, bias: bool = True) -> None:
        super().__init__()
        self.size = size
        self.bias = bias

    def build(self, region_size: int, query_sizes: QuerySizes) -> None:
        self.region = nn.Linear(region_size, self.size, bias=self.bias)
        self.query = nn.Linear(self.size, 1, bias=False)

    def keys(self, regions: Regions) -> Tensor:
        """(B, 1, L) the scores themselves."""
        return self.query(self.region(regions.vectors).tanh()).mT

    def penalty(self) -> Tensor:
        """‖Q Qᵀ − I‖²_F."""
        return overlap(self.region.weight)
