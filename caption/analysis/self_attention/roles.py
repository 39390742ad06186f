"""Roles of self-attention heads: whether a head looks at one neighbour, at a word of the syntax, or at rare words.

Voita et al. 2019, "Analyzing Multi-Head Self-Attention", section 5: a head is *positional* if at least 90 % of the time
its largest weight lies at one neighbouring position; it is *syntactic* for a relation, such as that of a verb to its
subject, if it lies on the word so related at least 10 % of the time more than at the relation's most frequent offset;
and it is a head for *rare words* if it lies on the rarest word. Here positions are those of words, or of regions in
their grid:

    print(region_roles(region_maps(captioner, photos)))
    print(word_roles(word_maps(captioner, photos), counts, caption.data.shapes.dependencies))

`caption.analysis.heads` is about heads with which words look at regions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from caption.analysis.heads import Roles, shares_of_maximum
from caption.analysis.self_attention.maps import RegionMaps
from caption.analysis.table import Cell, Table, numbers
from caption.attention.map_entropy import entropy
from caption.results.caption import Caption

POSITIONAL = 0.9
"""A head is positional if its maximum lies at one neighbour for this share of the queries (Voita et al. 2019)."""
SYNTACTIC = 0.1
"""A head is syntactic if its maximum lies on the related word so much more often than at the most frequent offset."""
Syntax = Callable[[Sequence[str]], Mapping[str, Sequence[tuple[int, int]]]]
"""Words of a caption -> by relation, the places of a word and of an earlier one to which it is related."""
NOWHERE = -1
"""The index of a key that a query does not have."""
AROUND = [(down, across) for down in (-1, 0, 1) for across in (-1, 0, 1) if down or across]
"""Offsets of the neighbours in a grid: rows down, columns to the right."""


@dataclass(frozen=True)
class SelfAttentionRoles(Roles):
    """Measures of H heads, each a mean over the queries: regions of photos, or steps of captions.

    Where n weights are equally large, each counts as 1/n of the maximum. `positional` is the share of the queries at
    which the maximum lies at the head's neighbour, among those that have this neighbour.
    """

    queries: int
    """How many regions or steps were measured."""
    at_itself: np.ndarray
    """(H,) share of the queries at which the maximum lies on the query itself."""
    neighbour: tuple[tuple[int, int], ...]
    """H offsets, rows down and columns to the right: the neighbour where the head's maximum lies most often. A word's
    is (0, -1), the word before."""
    rare: np.ndarray
    """(H,) share of the steps at which the maximum lies on the rarest word fed so far, among those after two or more;
    NaN for regions."""

    related: Mapping[str, np.ndarray]
    """(H,) by relation: share of the steps that say a word with this relation at which the maximum lies on the related
    word."""
    baselines: Mapping[str, float]
    """By relation, the share at which the related word lies at the relation's most frequent offset: what a positional
    head can reach."""

    @property
    def is_positional(self) -> np.ndarray:
        """(H,) bool: the heads that are positional by the 90 % rule."""
        return self.positional >= POSITIONAL

    @property
    def is_syntactic(self) -> dict[str, np.ndarray]:
        """(H,) bool by relation: the heads that are syntactic by the 10 % rule."""
        return {name: shares >= self.baselines[name] + SYNTACTIC for name, shares in self.related.items()}

    def table(self) -> Table:
        """A row for each head: its neighbour, how often its maximum lies there, and what its roles are."""
        roles = {"positional": self.is_positional, **self.is_syntactic}
        columns: dict[str, Sequence[Cell]] = {
            "confidence": numbers(self.confidence),
            "entropy": numbers(self.entropy),
            "itself": numbers(self.at_itself),
            "neighbour": [f"{down:+d}, {across:+d}" for down, across in self.neighbour],
            "there": numbers(self.positional),
            "rare": numbers(self.rare),
            **{
                f"{name} (offset: {self.baselines[name]:.2f})": numbers(shares)
                for name, shares in self.related.items()
            },
            "role": [
                ", ".join(role for role, has in roles.items() if has[head]) for head in range(len(self))
            ],
        }
        return self._table(f"{self.queries} queries", columns)


def region_roles(maps: Iterable[RegionMaps]) -> SelfAttentionRoles:
    """Roles of the heads with which regions look at regions.

    Args:
        maps: of photos, from `region_maps`, all on one grid.

    Raises:
        ValueError: the list is empty, or the maps differ in shape.
    """
    maps = list(maps)
    if len({(of_photo.grid, *map(len, of_photo.layers)) for of_photo in maps}) != 1:
        raise ValueError("roles of heads need the maps of one photo or more, all of one model on one grid")
    rows, cols = maps[0].grid
    row, col = (places.ravel() for places in np.indices((rows, cols)))
    targets = {}
    for down, across in [(0, 0), *AROUND]:
        inside = (row + down >= 0) & (row + down < rows) & (col + across >= 0) & (col + across < cols)
        target = np.where(inside, (row + down) * cols + col + across, NOWHERE)
        targets[down, across] = np.tile(target, len(maps))
    layers = [
        np.concatenate(of_layer, 1) for of_layer in zip(*(of_photo.layers for of_photo in maps), strict=True)
    ]
    return _measure(layers, targets, np.full(layers[0].shape[1], NOWHERE), {})


def word_roles(
    captions: Iterable[Caption], counts: Mapping[str, int] | None = None, syntax: Syntax | None = None
) -> SelfAttentionRoles:
    """Roles of the heads with which words look at the words before.

    Args:
        captions: from `word_maps`, all of one model.
        counts: how often each word occurs, such as in the training captions; a word without a count is rarest. None =
            counted in the captions.
        syntax: which words are related, such as `caption.data.shapes.dependencies`, or a parser's answer; None = not
            measured. The step that says a word is asked whether it looks at the related word.

    Raises:
        ValueError: the captions have no words.
    """
    captions = [caption for caption in captions if caption.words]
    if not captions:
        raise ValueError("roles of heads are means over words, and these captions have none")
    known = Counter(word for caption in captions for word in caption.words) if counts is None else counts
    longest = max(len(caption.words) for caption in captions)
    steps = np.concatenate([np.arange(len(caption.words)) for caption in captions])
    rarest = np.concatenate([_rarest(caption.words, known) for caption in captions])
    layers = [
        np.concatenate(
            [np.pad(heads, ((0, 0), (0, 0), (0, longest - heads.shape[2]))) for heads in of_layer], 1
        )
        for of_layer in zip(*(caption.self_attention for caption in captions), strict=True)
    ]
    before = np.where(steps > 0, steps - 1, NOWHERE)
    parsed = [{} if syntax is None else syntax(caption.words) for caption in captions]
    related = {
        name: np.concatenate(
            [_related(caption.words, of[name]) for caption, of in zip(captions, parsed, strict=True)]
        )
        for name in parsed[0]
    }
    return _measure(layers, {(0, 0): steps, (0, -1): before}, rarest, related)


def _related(words: Sequence[str], pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """(T,) where the word to which a step's word is related is fed: one step after it is said; else `NOWHERE`."""
    places = np.full(len(words), NOWHERE)
    for word, earlier in pairs:
        places[word] = earlier + 1
    return places


def _rarest(words: list[str], counts: Mapping[str, int]) -> np.ndarray:
    """(T,) the place of the rarest word fed so far, the start token left out; `NOWHERE` where fewer than two are."""
    numbers = [counts.get(word, 0) for word in words]
    return np.array([
        1 + int(np.argmin(numbers[:step])) if step > 1 else NOWHERE for step in range(len(words))
    ])  # fmt: skip


def _measure(
    layers: Sequence[np.ndarray],
    targets: Mapping[tuple[int, int], np.ndarray],
    rarest: np.ndarray,
    related: Mapping[str, np.ndarray],
) -> SelfAttentionRoles:
    """The measures of Q queries over K keys.

    Args:
        layers: (M, Q, K) of each layer.
        targets: by offset, (Q,) the key at this offset from each query, or `NOWHERE`; (0, 0) is the query itself.
        rarest: (Q,) the key of the rarest word, or `NOWHERE`.
        related: by relation, (Q,) the key of the related word, or `NOWHERE`.
    """
    heads = torch.from_numpy(np.concatenate(layers)).double()
    shares = shares_of_maximum(heads).double().numpy()  # (H, Q, K)

    def share_at(keys: np.ndarray) -> np.ndarray:
        """(H,) mean share of the maximum at one key of each query."""
        there = (keys != NOWHERE).nonzero()[0]
        return shares[:, there, keys[there]].mean(1) if len(there) else np.full(len(shares), np.nan)

    around = [offset for offset in targets if offset != (0, 0)]
    at = np.stack([share_at(targets[offset]) for offset in around], -1)  # (H, offsets)
    best = np.nan_to_num(at, nan=-1.0).argmax(-1)
    return SelfAttentionRoles(
        labels=tuple(
            f"layer {number} head {head}" for number, layer in enumerate(layers) for head in range(len(layer))
        ),
        queries=heads.shape[1],
        confidence=heads.amax(-1).mean(-1).numpy(),
        entropy=entropy(heads).mean(-1).numpy(),
        at_itself=share_at(targets[0, 0]),
        neighbour=tuple(around[offset] for offset in best),
        positional=at[np.arange(len(at)), best],
        rare=share_at(rarest),
        related={name: share_at(keys) for name, keys in related.items()},
        baselines={name: _most_frequent_offset(keys, targets[0, 0]) for name, keys in related.items()},
    )


def _most_frequent_offset(keys: np.ndarray, queries: np.ndarray) -> float:
    """The share of the keys, of those that there are, at their most frequent offset from the query."""
    offsets = Counter((keys - queries)[keys != NOWHERE].tolist())
    return max(offsets.values()) / offsets.total() if offsets else np.nan
