"""Rotatory attention (Zheng and Xia 2018, "Left-Center-Right Separated Neural Network"): a target and its left and
right contexts in the photo, each guiding the attention to the others."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, GridMemory, Query, QuerySizes, WeighOutput
from caption.attention.maps import cell_positions, hide_masked, weighted_sum
from caption.attention.scored import Score, build_stateless, score_copies
from caption.core.regions import Regions, Views
from caption.core.tensor_tree import TensorTree


class RotatoryMaps(NamedTuple):
    """The maps of the target and of its two contexts, all over the same grid."""

    target: Tensor
    """(B, K, 2, L) over the target, with the queries r_l and r_r."""
    left: Tensor
    """(B, K, L) over the regions left of the target; its sum is the probability that there are any."""
    right: Tensor
    """(B, K, L) over the regions right of it, likewise."""


class RotatoryAttention(Attention):
    """Attention among three inputs: the part of the photo that a word describes (the target), and the contexts left and
    right of it.

    r_t = mean of the target's vectors; r_l and r_r = attention over the contexts with the query r_t; r_lt and r_rt =
    attention over the target with the queries r_l and r_r. z = [r_l; r_r; r_lt; r_rt]. Each of the three inputs has
    keys k and values v of its own, so r_lt and r_rt read the same ones; each of the four attentions has a score of its
    own: e_i = score(query, k_i), r = Σ α_i v_i. In Zheng and Xia 2018 the score is `ActivatedGeneralScore`,
    tanh(kᵀ W q + b).

    There the target is given: words of a sentence. Here the decoder chooses it: region i is the target with probability
    τ_i, τ = softmax(f(a, h)). So i is left of the target with probability λ_i, the sum of τ_j over the columns right of
    i, and right of it with probability ρ_i. A sum over a set becomes a sum weighted by membership: r_t = Σ τ_i a_i,
    α_i ∝ τ_i exp(e_i) over the target, α_i ∝ λ_i exp(e_i) over the left context, with the sum max λ, so that r_l = 0
    if no region is left of the target. If τ is 1 / n on n regions of one column, and 0 elsewhere, this is the published
    form.

    Args:
        target: f, the score by which the decoder chooses the target.
        score: how a query and a key are compared in the four attentions.
        size: length of keys and values.

    Raises:
        UserError: `size` is below 1; when built with a score that keeps a state.
    """

    map_views = {"target": 0, "left": 0, "right": 0}

    def __init__(self, target: Score, score: Score, size: int = 256) -> None:
        super().__init__()
        self.size = size
        self.target = target
        self.left, self.right, self.target_by_left, self.target_by_right = score_copies(score, 4)

    @property
    def scores(self) -> tuple[Score, ...]:
        """The scores of the four attentions, in the order of z."""
        return self.left, self.right, self.target_by_left, self.target_by_right

    def create_weights(self, region_sizes: tuple[int, ...], query_sizes: QuerySizes) -> None:
        region_size, size = region_sizes[0], self.size
        build_stateless(self, self.target, region_size, query_sizes)
        for score, query_size in zip(self.scores, (region_size, region_size, size, size), strict=True):
            build_stateless(self, score, size, QuerySizes(query_size))
        self.of_left, self.of_right, self.of_target = (KeysAndValues(region_size, size) for _ in range(3))
        self.context_size = 4 * size

    def memory(self, views: Views) -> tuple[GridMemory, ...]:
        """The regions with the keys of f, then the memory of each of the four attentions."""
        regions = views[0]
        of_target = self.of_target(regions)
        inputs = (self.of_left(regions), self.of_right(regions), of_target, of_target)
        return GridMemory.of(regions, self.target.keys(regions)), *(
            GridMemory(score.keys(keys), values, regions.mask, regions.grid)
            for score, (keys, values) in zip(self.scores, inputs, strict=True)
        )

    def weigh(self, query: Query, memory: tuple[GridMemory, ...], state: TensorTree) -> WeighOutput:
        regions, *grids = memory
        target = hide_masked(self.target(query, regions), regions.mask).softmax(-1)  # τ
        column = cell_positions(regions.grid, target)[:, 1]
        # (L, L): whether the first region is right of the second
        right_of = (column[:, None] > column).to(target.dtype)
        target_query = Query(weighted_sum(target, regions.values))  # r_t
        context_maps, target_maps = [], []
        for side, members in enumerate((target @ right_of, target @ right_of.mT)):  # λ, ρ
            weights = _among(members, self.scores[side](target_query, grids[side]), regions.mask)
            context_maps.append(weights * hide_masked(members, regions.mask).amax(-1, keepdim=True))
            context_query = Query(weighted_sum(context_maps[-1], grids[side].values))  # r_l, r_r
            scores = self.scores[2 + side](context_query, grids[2 + side])
            target_maps.append(_among(target, scores, regions.mask))
        return WeighOutput(RotatoryMaps(torch.stack(target_maps, 2), *context_maps))

    def context(self, maps: RotatoryMaps, query: Query, memory: tuple[GridMemory, ...]) -> Tensor:
        weights = (maps.left, maps.right, *maps.target.unbind(2))
        return torch.cat(
            [weighted_sum(w, grid.values) for w, grid in zip(weights, memory[1:], strict=True)], -1
        )


def _among(members: Tensor, scores: Tensor, mask: Tensor | None) -> Tensor:
    """α_i ∝ m_i exp(e_i), with sum 1; all (B, K, L), the mask (B, L). Arbitrary weights if all m_i are 0."""
    least = torch.finfo(members.dtype).tiny
    return hide_masked(scores + members.clamp(min=least).log(), mask).softmax(-1)


class KeysAndValues(nn.Module):
    """The keys and values of one of the three inputs.

    Args:
        region_size: length of region vectors.
        size: length of keys and values.
    """

    def __init__(self, region_size: int, size: int) -> None:
        super().__init__()
        self.key = nn.Linear(region_size, size)
        self.value = nn.Linear(region_size, size)

    def forward(self, regions: Regions) -> tuple[Regions, Tensor]:
        """Keys in the place of the regions' vectors, and values (B, L, `size`)."""
        return regions._replace(vectors=self.key(regions.vectors)), self.value(regions.vectors)
