"""Additive score (Bahdanau et al. 2015, the f_att of Xu et al. 2015): e_i = v · tanh(U a_i + W h + b)."""

from __future__ import annotations

from torch import Tensor, nn

from caption.attention.scored import Score


class AdditiveScore(Score):
    """e_i = v · tanh(U a_i + W h + b): a small network that compares each region with the query.

    The nonlinearity stands between the sum and v: without it the term of h would be the same for every region
    and cancel in the softmax, and the weights would never move.

    Args:
        size: width A of the comparison.
    """

    def __init__(self, size: int = 512) -> None:
        super().__init__()
        self.size = size

    def build(self, region_size: int, query_size: int) -> None:
        self.region = nn.Linear(region_size, self.size)
        self.query = nn.Linear(query_size, self.size, bias=False)  # the bias b is in `region`
        self.energy = nn.Linear(self.size, 1, bias=False)  # a bias here would cancel in the softmax

    def keys(self, regions: Tensor) -> Tensor:
        return self.region(regions)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        joined = keys[:, None] + self.query(query)[:, :, None]  # (B, K, L, A)
        return self.energy(joined.tanh_()).squeeze(-1)
