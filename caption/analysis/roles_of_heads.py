"""Roles of heads (Voita et al. 2019, "Analyzing Multi-Head Self-Attention", section 5): what each head is for.

Heads are sorted by where, and on which words, they concentrate. Where words look at regions, a head has measures
(`HeadRoles`) of each of the maps that a mechanism makes per word: heads, hops, queries.

    roles = head_roles(captions, classes={"colours": COLOURS, "shapes": SHAPES})
    print(roles)
    roles.divergence  # (M, M)

In self-attention (`SelfAttentionRoles`), a head is *positional* if at least 90 % of the time its largest weight lies at
one neighbouring position; it is *syntactic* for a relation, such as that of a verb to its subject, if it lies on the
word so related at least 10 % of the time more than at the relation's most frequent offset; and it is a head for *rare
words* if it lies on the rarest word. Positions are those of words, or of regions in their grid.

    print(region_roles(region_maps(captioner, photos)))
    print(word_roles(word_maps(captioner, photos), counts, caption.data.shapes.dependencies))

The numbers describe maps. Whether a word depends on a head is another question: `caption.analysis.interventions`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor

from caption.analysis.map_statistics import divergence
from caption.analysis.self_attention.maps import RegionMaps
from caption.analysis.table import AnalysisTable, Cell, Tabled, numbers
from caption.attention.map_entropy import entropy
from caption.results.caption import Caption, map_label

RARE = 0.001
"""A word is rare if it is less than this share of all words."""
TIE = 1e-6
"""Weights this close to the largest, relative to it, share the maximum."""
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
class Roles(Tabled):
    """Measures of H heads, each a mean, with NaN where there was nothing to average."""

    labels: tuple[str, ...]
    """The H heads, such as "heads[2]" or "layer 0 head 2"."""
    confidence: np.ndarray
    """(H,) mean of the largest weight, 1/L for even weights to 1 for a single region."""
    entropy: np.ndarray
    """(H,) mean entropy in nats, 0 for a single region to log L for even weights."""
    positional: np.ndarray
    """(H,) how often the head's maximum lies at its own place."""

    def _table(self, corner: str, columns: Mapping[str, Sequence[Cell]]) -> AnalysisTable:
        return AnalysisTable(
            (corner, *columns), [list(row) for row in zip(self.labels, *columns.values(), strict=True)]
        )

    def __len__(self) -> int:
        """Number of heads."""
        return len(self.labels)


def _shares_of_maximum(weights: Tensor) -> Tensor:
    """(..., L) 1 at the largest of weights (..., L); n that are equally large have 1/n each."""
    maxima = (weights >= weights.amax(-1, keepdim=True) * (1 - TIE)).to(weights.dtype)
    return maxima / maxima.sum(-1, keepdim=True)


# -- words that look at regions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadRoles(Roles):
    """Measures of the heads with which N words look at regions. Weights are shares |α_i| / Σ_j |α_j| of a map.

    A map without any weight is left out of its head's means. `positional` is the share of the words at which the head's
    maximum lies in its own cell: 1 for a head that always looks at one place. n equal maxima count 1/n each, so a
    uniform head has 1/L.
    """

    words: int
    """N."""
    rare_words: int
    """How many of them are rare."""
    cells: np.ndarray
    """(H, 2) int64: row and column of the head's own cell, where its maximum lies most often."""
    positional_others: np.ndarray
    """(H,) share of the words at which the maximum of another head lies in that cell, mean over the other heads; NaN
    for a single head. A positional head exceeds it: places where all heads look are not a role."""
    rare: np.ndarray
    """(H,) nats by which the mean entropy at rare words is lower than at all words; above 0, the head concentrates on
    rare words. NaN if no word is rare."""
    classes: Mapping[str, np.ndarray]
    """(H,) the same for the words of each class, by its name."""
    divergence: np.ndarray
    """(H, H) mean Jensen-Shannon divergence of two heads' maps of the same word, in bits: 0 for equal maps to 1 for
    maps that share no region."""

    def table(self) -> AnalysisTable:
        """A row for each head: its own cell, how its entropy falls at rare words and at those of each class, and the
        head whose maps are most like its own."""
        columns: dict[str, Sequence[Cell]] = {
            "confidence": numbers(self.confidence),
            "entropy": numbers(self.entropy),
            "cell": [f"{row}, {col}" for row, col in self.cells],
            "positional": numbers(self.positional),
            "others": numbers(self.positional_others),
            "rare": numbers(self.rare, "+.2f"),
            **{name: numbers(gains, "+.2f") for name, gains in self.classes.items()},
        }
        if len(self) > 1:
            apart = np.where(
                np.eye(len(self), dtype=bool) | np.isnan(self.divergence), np.inf, self.divergence
            )
            columns["closest"] = [self.labels[head] for head in apart.argmin(1)]
            columns["divergence"] = numbers(apart.min(1))
        return self._table(f"{self.words} words", columns)


def head_roles(
    captions: Iterable[Caption],
    name: str = "heads",
    *,
    counts: Mapping[str, int] | None = None,
    rare_below: float = RARE,
    classes: Mapping[str, Collection[str]] | None = None,
) -> HeadRoles:
    """Measure the roles of the maps of one name.

    Args:
        captions: with `maps[name]` (T, *structure, rows, cols), such as "heads" (T, M, rows, cols); all on one grid.
        name: among the captions' maps.
        counts: how often each word occurs, such as in the training captions; a word without a count is rare. None =
            counted in `captions`.
        rare_below: words whose share of all words counted is smaller are rare.
        classes: words by the name of their class, such as {"colours": COLOURS}.

    Raises:
        ValueError: the captions have no words, one has no map of that name, or maps differ in shape.
    """
    captions = [caption for caption in captions if caption.words]
    *structure, rows, cols = _shape(captions, name)
    words = [word for caption in captions for word in caption.words]
    maps = torch.from_numpy(np.concatenate([caption.maps[name] for caption in captions]))
    shares = maps.double().abs().reshape(len(words), -1, rows * cols)
    shares = shares / shares.sum(-1, keepdim=True)  # NaN for a map without any weight

    often = _shares_of_maximum(shares).where(~shares.isnan(), torch.nan).nanmean(0)  # (M, L)
    own_cells = often.nan_to_num().argmax(-1)
    at_own_cells = often[:, own_cells]  # (M, M): how often each head looks at each other's cell
    at_cells_of_others = at_own_cells.masked_fill(
        torch.eye(len(own_cells), dtype=torch.bool), torch.nan
    ).nanmean(0)

    spread = entropy(shares).where(~shares.isnan().any(-1), torch.nan)  # (N, M)
    occurrences = counts if counts is not None else Counter(words)
    total = sum(occurrences.values())
    rare = torch.tensor([occurrences.get(word, 0) < rare_below * total for word in words])

    def gain(chosen: Tensor) -> np.ndarray:
        """(M,) how much lower the entropy is at the chosen words."""
        return (spread.nanmean(0) - spread[chosen].nanmean(0)).numpy()

    return HeadRoles(
        labels=tuple(map_label(name, place) for place in np.ndindex(*structure)),
        words=len(words),
        rare_words=int(rare.sum()),
        confidence=shares.amax(-1).nanmean(0).numpy(),
        entropy=spread.nanmean(0).numpy(),
        cells=torch.stack((own_cells // cols, own_cells % cols), -1).numpy(),
        positional=at_own_cells.diagonal().numpy(),
        positional_others=at_cells_of_others.numpy(),
        rare=gain(rare),
        classes={
            kind: gain(torch.tensor([word in members for word in words]))
            for kind, members in (classes or {}).items()
        },
        divergence=torch.stack(
            [divergence(head[:, None], shares).nanmean(0) for head in shares.unbind(1)]
        ).numpy(),
    )


def _shape(captions: Sequence[Caption], name: str) -> tuple[int, ...]:
    """(*structure, rows, cols) of the maps of one name; a ValueError unless all captions have it."""
    if not captions:
        raise ValueError("roles of heads are means over words, and these captions have none")
    for caption in captions:
        if name not in caption.maps:
            raise ValueError(
                f"no map {name!r} in the caption {caption.text!r}: it has {', '.join(caption.maps) or 'none'}"
            )
    shapes = {caption.maps[name].shape[1:] for caption in captions}
    if len(shapes) > 1:
        raise ValueError(f"the maps {name!r} must have one shape, and have {sorted(shapes)}")
    return shapes.pop()


# -- self-attention: regions that look at regions, words at the words before ----------------------------------------


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
    """(H,) by relation: share of the steps that predict a word with this relation at which the maximum lies on the
    related word."""
    baselines: Mapping[str, float]
    """By relation, the share at which the related word lies at the relation's most frequent offset: the best that a
    positional head can reach."""

    @property
    def is_positional(self) -> np.ndarray:
        """(H,) bool: the heads that are positional by the 90 % rule."""
        return self.positional >= POSITIONAL

    @property
    def is_syntactic(self) -> dict[str, np.ndarray]:
        """(H,) bool by relation: the heads that are syntactic by the 10 % rule."""
        return {name: shares >= self.baselines[name] + SYNTACTIC for name, shares in self.related.items()}

    def table(self) -> AnalysisTable:
        """A row for each head: its neighbour, how often its maximum lies there, and its roles."""
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
    return _self_attention_roles(layers, targets, np.full(layers[0].shape[1], NOWHERE), {})


def word_roles(
    captions: Iterable[Caption], counts: Mapping[str, int] | None = None, syntax: Syntax | None = None
) -> SelfAttentionRoles:
    """Roles of the heads with which words look at the words before.

    Args:
        captions: from `word_maps`, all of one model.
        counts: how often each word occurs, such as in the training captions; a word without a count is rarest. None =
            counted in the captions.
        syntax: which words are related, such as `caption.data.shapes.dependencies`, or a parser's output; None = not
            measured. It is measured at the step that predicts the word.

    Raises:
        ValueError: the captions have no words.
    """
    captions = [caption for caption in captions if caption.words]
    if not captions:
        raise ValueError("roles of heads are means over words, and these captions have none")
    occurrences = (
        Counter(word for caption in captions for word in caption.words) if counts is None else counts
    )
    longest = max(len(caption.words) for caption in captions)
    steps = np.concatenate([np.arange(len(caption.words)) for caption in captions])
    rarest = np.concatenate([_rarest(caption.words, occurrences) for caption in captions])
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
            [_related(caption.words, of.get(name, ())) for caption, of in zip(captions, parsed, strict=True)]
        )
        for name in dict.fromkeys(chain.from_iterable(parsed))
    }
    return _self_attention_roles(layers, {(0, 0): steps, (0, -1): before}, rarest, related)


def _related(words: Sequence[str], pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """(T,) the place at which the related word of each word is fed, one step after it is predicted; else `NOWHERE`."""
    places = np.full(len(words), NOWHERE)
    for word, earlier in pairs:
        places[word] = earlier + 1
    return places


def _rarest(words: list[str], counts: Mapping[str, int]) -> np.ndarray:
    """(T,) the place of the rarest word fed so far, without the start token; `NOWHERE` for fewer than two words."""
    numbers = [counts.get(word, 0) for word in words]
    return np.array([
        1 + int(np.argmin(numbers[:step])) if step > 1 else NOWHERE for step in range(len(words))
    ])  # fmt: skip


def _self_attention_roles(
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
    shares = _shares_of_maximum(heads).double().numpy()  # (H, Q, K)

    def share_at(keys: np.ndarray) -> np.ndarray:
        """(H,) mean share of the maximum at one key of each query."""
        queries = (keys != NOWHERE).nonzero()[0]
        return shares[:, queries, keys[queries]].mean(1) if len(queries) else np.full(len(shares), np.nan)

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
    """The share of the existing keys at their most frequent offset from the query."""
    offsets = Counter((keys - queries)[keys != NOWHERE].tolist())
    return max(offsets.values()) / offsets.total() if offsets else np.nan
