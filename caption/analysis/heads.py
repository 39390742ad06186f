"""Roles of heads: what each of the maps that a mechanism makes per word (heads, hops, queries) is for.

After Voita et al. 2019, section 5, who sort the heads of a Transformer by where, and on which words, they concentrate.
Here a head looks at regions while words are said:

    roles = head_roles(captions, classes={"colours": COLOURS, "shapes": SHAPES})
    print(roles)
    roles.divergence  # (M, M)

The numbers describe maps. Whether a word depends on a head is another question: `caption.analysis.interventions`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from caption.analysis.map_statistics import divergence
from caption.analysis.table import Cell, Table, Tabled, numbers
from caption.attention.map_entropy import entropy
from caption.results.caption import Caption, map_label

RARE = 0.001
"""A word is rare if fewer than one in a thousand words is this one."""
TIE = 1e-6
"""Weights this close to the largest, relative to it, share the maximum."""


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

    def _table(self, corner: str, columns: Mapping[str, Sequence[Cell]]) -> Table:
        return Table(
            (corner, *columns), [list(row) for row in zip(self.labels, *columns.values(), strict=True)]
        )

    def __len__(self) -> int:
        """Number of heads."""
        return len(self.labels)


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

    def table(self) -> Table:
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
            columns["closest"] = [self.labels[other] for other in apart.argmin(1)]
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
    """Measure what the maps of one name do while words are said.

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

    often = shares_of_maximum(shares).where(~shares.isnan(), torch.nan).nanmean(0)  # (M, L)
    own_cells = often.nan_to_num().argmax(-1)
    at_own_cells = often[:, own_cells]  # (M, M): how often each head looks at each other's cell
    others = at_own_cells.masked_fill(torch.eye(len(own_cells), dtype=torch.bool), torch.nan).nanmean(0)

    spread = entropy(shares).where(~shares.isnan().any(-1), torch.nan)  # (N, M)
    known = counts if counts is not None else Counter(words)
    total = sum(known.values())
    rare = torch.tensor([known.get(word, 0) < rare_below * total for word in words])

    def gain(chosen: Tensor) -> np.ndarray:
        """(M,) how much lower the entropy is at some of the words."""
        return (spread.nanmean(0) - spread[chosen].nanmean(0)).numpy()

    return HeadRoles(
        labels=tuple(map_label(name, place) for place in np.ndindex(*structure)),
        words=len(words),
        rare_words=int(rare.sum()),
        confidence=shares.amax(-1).nanmean(0).numpy(),
        entropy=spread.nanmean(0).numpy(),
        cells=torch.stack((own_cells // cols, own_cells % cols), -1).numpy(),
        positional=at_own_cells.diagonal().numpy(),
        positional_others=others.numpy(),
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


def shares_of_maximum(weights: Tensor) -> Tensor:
    """(..., L) 1 at the largest of weights (..., L); n that are equally large have 1/n each."""
    maxima = (weights >= weights.amax(-1, keepdim=True) * (1 - TIE)).to(weights.dtype)
    return maxima / maxima.sum(-1, keepdim=True)
