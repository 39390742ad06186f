"""Deletion and insertion curves: do words depend on the regions that the model looked at?

Regions are hidden one after the other, in an order, and the word's probability is measured (Samek et al. 2017; Petsiuk
et al. 2018, "RISE", for images; Serrano and Smith 2019, "Is Attention Interpretable?", for attention weights). If the
order begins with the regions that the word depends on, *deletion* lowers the probability at once, and *insertion*,
which starts without regions and shows them in that order, raises it at once. A good order has a small area under the
first curve and a large one under the second. Attention is compared with random orders, which any explanation must beat,
with gradients, and with occlusion, which measures single regions.

A region is hidden from the context of one step alone. The words before and the decoder's state stay, so the fall is
that of a word with less context, not of a word whose preceding words have changed. Information that is already in the
state is not hidden; the end of the deletion curve shows how much that is.

    curves = faithfulness_curves(captioner, "photo.jpg")
    curves.area("deletion", "attention")     # one number per word
    curves.plot()
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from caption.analysis.ablation import Ablation, Removed
from caption.analysis.maps.attention import magnitude
from caption.analysis.maps.gradients import gradient, gradient_of_hiding, gradient_times_input
from caption.analysis.maps.perturbation import AtRandom, occlusion
from caption.analysis.maps.trial import Score, Trial, ranks
from caption.analysis.per_word import Measurements, PerWord
from caption.analysis.replay import Replay, sentences
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.metrics.significance import estimate
from caption.results.caption import Caption

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Kind = Literal["deletion", "insertion"]
ORDERS: dict[str, Score] = {
    "attention": magnitude,
    "random": AtRandom(),
    "gradient": gradient,
    "gradient x input": gradient_times_input,
    "gradient of hiding": gradient_of_hiding,
    "occlusion": occlusion,
}
"""By name, the scores in whose order regions are hidden, the highest first."""
# Distinct in grey, too. Attention is first: the other orders are compared with it.
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)))


@dataclass(frozen=True, repr=False)
class FaithfulnessCurves(PerWord):
    """The curves of N words, P points each. Log-probabilities are natural."""

    counts: tuple[int, ...]
    """(P,) numbers of regions hidden (deletion) or shown (insertion), from 0 to L."""
    log_probs: Mapping[tuple[Kind, str], np.ndarray]
    """(N, R, P) by kind of curve and name of the order; R draws of a random one, else 1."""

    @property
    def shares(self) -> np.ndarray:
        """(P,) `counts` as a share of all regions, 0 to 1."""
        return np.array(self.counts) / self.counts[-1]

    @property
    def orders(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(order for _, order in self.log_probs))

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """The areas under deletion by the order."""
        return {order: self.area("deletion", order) for order in self.orders}

    def plot(self) -> Figure:
        """Deletion and insertion side by side, see `draw`.

        Raises:
            ValueError: there are no words.
        """
        return plot_curves([{kind: (self, kind) for kind in get_args(Kind)}])

    def draw(self, ax: Axes, kind: Kind) -> Axes:
        """Draw the mean probability of the words as regions are hidden (deletion) or shown (insertion).

        There is a line for each order; bands are 95 % intervals over images. The axis of regions is a square root,
        stretched at its start, because with attention the first few regions matter most.

        Args:
            ax: drawn on and returned.
            kind: "deletion" or "insertion".

        Raises:
            ValueError: there are no words.
        """
        if not len(self):
            raise ValueError("no words: there are no curves to draw")
        counts = np.array(self.counts)
        for number, order in enumerate(self.orders):
            curve = self.curve(kind, order)
            points = np.array([estimate(curve[:, point], self.images) for point in range(len(counts))])
            line = STYLES[number % len(STYLES)]
            (drawn,) = ax.plot(
                counts, points[:, 0], linestyle=line, linewidth=2 if number == 0 else 1.3, label=order
            )
            ax.fill_between(
                counts, points[:, 1], points[:, 2], color=drawn.get_color(), alpha=0.15, linewidth=0
            )
        ax.set_xscale("function", functions=(np.sqrt, np.square))
        ticks = [count for count in (0, 1, 4, 16, 64, 256) if count < counts[-1]] + [int(counts[-1])]
        ax.set_xticks(ticks, labels=[str(tick) for tick in ticks])
        ax.minorticks_off()
        participle = "hidden" if kind == "deletion" else "shown"
        ax.set(
            xlim=(0, counts[-1]),
            ylim=(0, 1.02),
            xlabel=f"regions {participle}, of {counts[-1]}",
            ylabel="p(word)",
        )
        ax.spines[["top", "right"]].set_visible(False)
        return ax

    def curve(self, kind: Kind, order: str, logarithm: bool = False) -> np.ndarray:
        """(N, P) probability of each word, or its logarithm, the mean over draws."""
        values = self.log_probs[kind, order]
        return (values if logarithm else np.exp(values)).mean(1)

    def area(self, kind: Kind, order: str) -> np.ndarray:
        """(N,) area under each word's curve over the share of regions, by trapezoids: its mean height."""
        return np.trapezoid(self.curve(kind, order), self.shares, axis=1)

    def fall(self, order: str, hidden: int) -> np.ndarray:
        """(N,) by how much log p falls (nats) once the first `hidden` regions of the order are; one of `counts`."""
        if hidden not in self.counts:
            raise ValueError(f"the curves have no point at {hidden} regions, only at {self.counts}")
        curve = self.curve("deletion", order, logarithm=True)
        return curve[:, 0] - curve[:, self.counts.index(hidden)]


def plot_curves(rows: Sequence[Mapping[str, tuple[FaithfulnessCurves, Kind]]]) -> Figure:
    """Rows of equally many panels, each with its title, a model's curves, and which of them are drawn.

    Raises:
        ValueError: there are no words.
    """
    from caption.visualize.layout import new_figure

    fig = new_figure((0.8 + 3.2 * len(rows[0]), 0.4 + 2.6 * len(rows)))
    fig.set_layout_engine("constrained")
    axes = fig.subplots(len(rows), len(rows[0]), squeeze=False, sharey=True)
    panels = [(title, *panel) for row in rows for title, panel in row.items()]
    for ax, (title, curves, kind) in zip(axes.flat, panels, strict=True):
        curves.draw(ax, kind).set_title(title, fontsize=10, parse_math=False)
        ax.label_outer()
    axes[0, -1].legend(title="order", frameon=False, fontsize=8, loc="lower right")
    return fig


def faithfulness_curves(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    orders: Mapping[str, Score] | None = None,
    ablation: Ablation | None = None,
    counts: Iterable[int] | None = None,
    seed: int = 0,
    batch_size: int = 32,
) -> FaithfulnessCurves:
    """Deletion and insertion curves of every word of the captions of some photos.

    Args:
        captioner, photos, captions, batch_size: see `replay.sentences`. The end word is not measured.
        orders: by name; `scores_of` of `caption.analysis.maps.trial` gives that of any maps; None = `ORDERS`.
        ablation: how regions are hidden; None = `Removed()`.
        counts: numbers of regions hidden; 0 and L are added. None = powers of √2, and L less powers of 2: the first
            regions matter most, and so do the last ones, if they share the weights of the hidden ones.
        seed: for orders drawn at random, and for ties.

    Raises:
        UserError: the decoder has no attention, or the photos' grids differ.
        ValueError: photos and captions differ in number, or a count is negative or above L.
    """
    counts = None if counts is None else [operator.index(count) for count in counts]  # read for every batch
    generator = torch.Generator().manual_seed(seed)
    replay = Replay(captioner.decoder)
    measured = Measurements()
    points = torch.zeros(0, dtype=torch.int64)
    for batch in sentences(captioner, photos, captions, batch_size):
        before, points = points, _points(counts, batch.views[0].vectors.shape[1])
        if len(before) and not points.equal(before):
            raise UserError(
                f"the photos have {int(before[-1])} and {int(points[-1])} regions, and a curve counts them: give "
                "photos of one grid at a time"
            )
        ablate = (ablation or Removed()).prepare(replay, batch)
        for step in replay.steps(batch):
            trial = Trial(replay, step, ablate, generator, batch.first)
            curves: dict[tuple[Kind, str], Tensor] = {}
            for name, order in (ORDERS if orders is None else orders).items():
                curves |= _curves(trial, name, ranks(order(trial), generator), points)
            measured.add(batch, step, {"log_probs": curves})
    return measured.result(FaithfulnessCurves, {"log_probs": {}}, counts=tuple(points.tolist()))


def _curves(trial: Trial, name: str, ranking: Tensor, points: Tensor) -> dict[tuple[Kind, str], Tensor]:
    """Ranks (B', R, L) -> the curves (B', R, P) of both kinds, computed together."""
    first = ranking[:, :, None] < points.to(ranking.device)[:, None]  # (B', R, P, L)
    visible = torch.cat((~first, first), 2)
    log_probs = trial.log_probs(visible.flatten(1, 2)).unflatten(1, visible.shape[1:3])
    deletion, insertion = log_probs.chunk(2, 2)
    return {("deletion", name): deletion, ("insertion", name): insertion}


def _points(counts: Iterable[int] | None, regions: int) -> Tensor:
    if counts is None:
        first = (round(2 ** (k / 2)) for k in range(2 * regions.bit_length()))
        last = (regions - 2**k for k in range(regions.bit_length()))
        counts = [count for count in (*first, *last) if 0 < count < regions]
    points = sorted({0, regions, *counts})
    if points[0] < 0 or points[-1] > regions:
        raise ValueError(f"of {regions} regions, 0 to {regions} can be hidden, not {points}")
    return torch.tensor(points)
