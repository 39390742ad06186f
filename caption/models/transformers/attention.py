"""Attention of a foreign model to the patches of the image, in one layer: the place where its maps are edited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from caption.attention.base import Attention, WeighOutput
from caption.attention.maps import hide_masked, single_precision
from caption.core.regions import WeightProperties
from caption.core.tensor_tree import TensorTree


class LayerMemory(NamedTuple):
    """Keys and values of B images in one layer; M' key heads, of which each serves M / M' heads."""

    keys: Tensor
    """(B, M', L, d) of the patches, those of the first view first."""
    values: Tensor
    """(B, M', L, d)."""
    mask: Tensor | None
    """(B, L) bool, True where a patch may be attended to; None = all."""
    other_keys: Tensor
    """(B, M', S, d) of the other tokens that every caption reads: class tokens, registers, a prompt."""
    other_values: Tensor
    """(B, M', S, d)."""
    first_view: int
    """Number of patches of the first view."""
    positions: Tensor | None = None
    """(B, L) int64 of the patches among the tokens before the words; None = the layer has no window."""
    other_positions: Tensor | None = None
    """(B, S) int64 of the other tokens."""
    shares: Tensor | None = None
    """(B, Q, L + 1) of each of Q query tokens, the shares of the L patches, and of all else, in what it has read. The
    keys, values, mask and positions are then those of query tokens; None = of patches."""

    def since(self, first: int) -> LayerMemory:
        """The memory without the tokens before position `first`."""
        if self.positions is None or self.other_positions is None:
            return self
        seen, kept = self.positions >= first, self.other_positions[0] >= first
        return self._replace(
            mask=seen if self.mask is None else seen & self.mask,
            other_keys=self.other_keys[:, :, kept],
            other_values=self.other_values[:, :, kept],
        )


class HeadQuery(NamedTuple):
    """The queries of a layer for K captions of B images, and their attention elsewhere than on patches."""

    hidden: Tensor
    """(B, K, M, d), scaled."""
    elsewhere_score: Tensor
    """(B, K, M) log Σ exp of the scores of all keys that are not patches."""
    elsewhere: Tensor
    """(B, K, M, d) the mean of their values, weighted by the softmax among them."""

    @classmethod
    def of(cls, hidden: Tensor, keys: Tensor, values: Tensor) -> HeadQuery:
        """Queries (B, K, M, d), and other keys and values (B, K, M', S, d); K may be 1 in these."""
        scores = (_grouped(hidden, keys.shape[2]) @ keys.mT).flatten(2, 3)  # (B, K, M, S)
        read = _precise(scores).softmax(-1).to(values.dtype).unflatten(2, (keys.shape[2], -1)) @ values
        return cls(hidden, _precise(scores).logsumexp(-1), read.flatten(2, 3))


class PatchMaps(NamedTuple):
    """The weights of M heads. They sum to 1 over all fields."""

    heads: Tensor
    """(B, K, M, L) over the patches of the first view."""
    second: Tensor | None
    """(B, K, M, L') over those of a second view, if the model reads a photo in tiles and as a whole; else None."""
    elsewhere: Tensor
    """(B, K, M, 1) the share of class tokens, registers and text."""


def maps_of_rows(
    query: Tensor, key: Tensor, mask: Tensor | None, rows: Tensor, patches: Tensor, first_view: int
) -> PatchMaps:
    """The weights of some tokens of a sequence, as K = N captions of each image.

    Args:
        query: (B, M, T, d), scaled.
        key: (B, M', T, d).
        mask: (B, 1, T, T), True or 0 where a token is read, False or what is added to the score elsewhere; None = a
            token reads itself and those before it.
        rows: (N,) int64, the tokens.
        patches: (L,) int64, the tokens of patches, in the order of the views.
        first_view: number of patches of the first view.
    """
    if mask is None:
        mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=key.device).tril()
    added = mask[..., rows, :] if mask.is_floating_point() else mask[..., rows, :].to(query).log()
    grouped = query[:, :, rows].unflatten(1, (key.shape[1], -1))
    scores = _precise((grouped @ key[:, :, None].mT).flatten(1, 2) + added)
    weights = scores.softmax(-1).transpose(1, 2)  # (B, N, M, T)
    of_patches = weights[..., patches]
    second = of_patches[..., first_view:] if len(patches) > first_view else None
    return PatchMaps(of_patches[..., :first_view], second, 1 - of_patches.sum(-1, keepdim=True))


class PatchAttention(Attention):
    """softmax over the patches and, as one share, everything else that a head of a foreign model reads.

    The weights are the model's own: a softmax over [patch scores, log Σ exp of the other scores] gives patches the same
    weights as a softmax over all scores. It has no parameters; queries, keys and values come from the model's layer.

    If a layer attends to query tokens, which have read the patches, the share of patch l is p_l = Σ_q α_q C_ql, with
    the weights α of the layer and the `shares` C. Edited shares p' are read with α'_q = Σ_l p'_l (α_q C_ql / p_l), each
    patch by the tokens through which it was read (Jeffrey's rule): if p' = p, then α' = α, and both have one sum. What
    the tokens have read is not edited.

    Args:
        views: 1, or 2 for a model that reads the photo in tiles and as a whole.
    """

    properties = WeightProperties(sentinel=True)

    def __init__(self, views: int = 1) -> None:
        super().__init__()
        self.view_count = views
        self.map_views = {"heads": 0, "second": 1} if views == 2 else {"heads": 0}

    def grids(self, views: Sequence[tuple[int, int]]) -> Mapping[str, tuple[int, int]]:
        """See `Attention.grids`; a photo that fits in one tile has no second view."""
        return {name: views[view] for name, view in self.map_views.items() if view < len(views)}

    def weigh(self, query: Any, memory: LayerMemory, state: TensorTree) -> WeighOutput:
        weights = _softmax(query, memory)
        if memory.shares is not None:
            weights = _of_patches(weights, memory.shares)
        first, patches = memory.first_view, weights.shape[-1] - 1
        second = weights[..., first:patches] if patches > first else None
        return WeighOutput(PatchMaps(weights[..., :first], second, weights[..., patches:]))

    def context(self, maps: PatchMaps, query: Any, memory: LayerMemory) -> Tensor:
        """(B, K, M · d)."""
        weights = torch.cat([part for part in maps if part is not None], -1)
        if memory.shares is not None:
            own = _softmax(query, memory)
            changes = weights / _of_patches(own, memory.shares).clamp_min(TINY)
            weights = own * torch.cat((changes @ memory.shares.mT[:, None], changes[..., -1:]), -1)
        weights = weights.to(memory.values.dtype)
        read = _by_key_head(weights[..., :-1], memory) @ memory.values
        return (_by_query(read, weights) + weights[..., -1:] * query.elsewhere).flatten(2)


TINY = 1e-30
"""Least share of a patch that shares are divided by."""


def _softmax(query: Any, memory: LayerMemory) -> Tensor:
    """(B, K, M, L + 1) the weights of patches, or of query tokens, and of everything else."""
    scores = _precise(_by_key_head(query.hidden, memory) @ memory.keys.mT)  # (B, M', M / M' · K, L)
    scores = hide_masked(_by_query(scores, query.hidden), memory.mask)
    return torch.cat((scores, query.elsewhere_score[..., None]), -1).softmax(-1)


def _of_patches(weights: Tensor, shares: Tensor) -> Tensor:
    """Weights of query tokens and of all else (B, K, M, Q + 1) -> of patches and of all else (B, K, M, L + 1)."""
    read = weights[..., :-1] @ shares[:, None]
    return torch.cat((read[..., :-1], read[..., -1:] + weights[..., -1:]), -1)


def _precise(scores: Tensor) -> Tensor:
    """In single precision at least, for a softmax."""
    return single_precision(scores)


def _grouped(heads: Tensor, key_heads: int) -> Tensor:
    """(B, K, M, x) -> (B, K, M', M / M', x)."""
    return heads.unflatten(2, (key_heads, -1))


def _by_key_head(heads: Tensor, memory: LayerMemory) -> Tensor:
    """(B, K, M, x) -> (B, M', M / M' · K, x), so that K captions read one image's keys without copies of them."""
    return _grouped(heads, memory.keys.shape[1]).permute(0, 2, 3, 1, 4).flatten(2, 3)


def _by_query(read: Tensor, heads: Tensor) -> Tensor:
    """(B, M', M / M' · K, x) -> (B, K, M, x)."""
    return read.unflatten(2, (-1, heads.shape[1])).permute(0, 3, 1, 2, 4).flatten(2, 3)
