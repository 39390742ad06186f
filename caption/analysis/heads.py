"""Roles of heads: what each of the maps that a mechanism makes per word (heads, hops, queries) is for.

After Voita et al. 2019, section 5, who sort the heads of a Transformer by where, and on which words, they concentrate.
Here a head looks at regions while words are said:

    roles = head_roles(captions, classes={"colours": COLOURS, "shapes": SHAPES})
    print(roles)
    roles.divergence  # (M, M)

The numbers describe maps. Whether a word depends on a head is another question: `caption.analysis.interventions`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import torch
from torch import Tensor

from caption.analysis.map_statistics import divergence
from caption.attention.map_entropy import entropy
from caption.result import Caption, map_label

RARE = 0.001
"""A word is rare if fewer than one in a thousand words is this one."""
TIE = 1e-6
"""Weights this close to the largest, relative to it, share the maximum."""


@dataclass(frozen=True)
class HeadRoles:
    """Measures of M heads, each a mean over N words. Weights are shares |α_i| / Σ_j |α_j| of a map.

    A map without any weight is left out of its head's means. NaN = there was nothing to average.
    """

    labels: tuple[str, ...]
    """The M heads, such as "heads[2]"."""
    words: int
    """N."""
    rare_words: int
    """How many of them are rare."""
    confidence: np.ndarray
    """(M,) mean of the largest weight, 1/L for even weights to 1 for a single region."""
    entropy: np.ndarray
    """(M,) mean entropy in nats, 0 for a single region to log L for even weights."""
    cells: np.ndarray
    """(M, 2) int64: row and column of the head's own cell, where its maximum lies most often."""
    positional: np.ndarray
    """(M,) share of the words at which the head's maximum lies in its own cell; 1 for a head that always looks at one
    place. n equal maxima count 1/n each, so a uniform head has 1/L."""
    positional_others: np.ndarray
    """(M,) share of the words at which the maximum of another head lies in that cell, mean over the other heads; NaN
    for a single head. A positional head exceeds it: places where all heads look are not a role."""
    rare: np.ndarray
    """(M,) nats by which the mean entropy at rare words is lower than at all words; above 0, the head concentrates on
    rare words. NaN if no word is rare."""
    classes: Mapping[str, np.ndarray]
    """(M,) the same for the words of each class, by its name."""
    divergence: np.ndarray
    """(M, M) mean Jensen-Shannon divergence of two heads' maps of the same word, in bits: 0 for equal maps to 1 for
    maps that share no region."""

    def __len__(self) -> int:
        """Number of heads."""
        return len(self.labels)

    def __str__(self) -> str:
        return aligned([self._columns(), *self._rows()])

    def _repr_html_(self) -> str:
        return html_table([self._columns(), *self._rows()])

    def _columns(self) -> list[str]:
        closest = ["closest", "divergence"] if len(self) > 1 else []
        names = ["confidence", "entropy", "cell", "positional", "others", "rare", *self.classes, *closest]
        return [f"{self.words} words", *names]

    def _rows(self) -> list[list[str]]:
        rows = []
        apart = np.where(np.eye(len(self), dtype=bool) | np.isnan(self.divergence), np.inf, self.divergence)
        for head, label in enumerate(self.labels):
            gains = [self.rare[head], *(values[head] for values in self.classes.values())]
            row, col = self.cells[head]
            cells = [
                label,
                two_digits(self.confidence[head]),
                two_digits(self.entropy[head]),
                f"{row}, {col}",
                two_digits(self.positional[head]),
                two_digits(self.positional_others[head]),
                *(two_digits(gain, sign="+") for gain in gains),
            ]
            if len(self) > 1:
                other = int(apart[head].argmin())
                cells += [self.labels[other], two_digits(apart[head, other])]
            rows.append(cells)
        return rows


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

    maxima = shares >= shares.amax(-1, keepdim=True) * (1 - TIE)
    often = (maxima / maxima.sum(-1, keepdim=True)).where(~shares.isnan(), torch.nan).nanmean(0)  # (M, L)
    own = often.nan_to_num().argmax(-1)
    at_own = often[:, own]  # (M, M): how often each head looks at each other's cell
    others = at_own.masked_fill(torch.eye(len(own), dtype=torch.bool), torch.nan).nanmean(0)

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
        cells=torch.stack((own // cols, own % cols), -1).numpy(),
        positional=at_own.diagonal().numpy(),
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


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Rows of a table as lines, the first column to the left."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table
    )


def html_table(table: Sequence[Sequence[str]]) -> str:
    """A table as HTML; its first row is the head."""
    head, *rows = table
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>"


def two_digits(value: float, sign: str = "") -> str:
    """A number in a table; "–" if there is none."""
    return f"{value:{sign}.2f}" if math.isfinite(value) else "–"
