"""Deletion and insertion curves on given axes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from caption.analysis.per_word import estimate

if TYPE_CHECKING:
    from caption.analysis.faithfulness.curves import FaithfulnessCurves, Kind

# Distinct in grey as well. Attention comes first: it is what everything is compared with.
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)))


def curve_plot(ax: Axes, curves: FaithfulnessCurves, kind: Kind) -> Axes:
    """Draw the mean probability of the words as regions are hidden (deletion) or shown (insertion), a line per order.

    Bands are 95 % intervals over images. The axis of regions is a square root, stretched at its start, because with
    attention the first few regions matter most.

    Args:
        ax: drawn on and returned.
        curves: the curves; N >= 1 words.
        kind: "deletion" or "insertion".

    Raises:
        ValueError: there are no words.
    """
    if not len(curves):
        raise ValueError("no words: there are no curves to draw")
    counts = np.array(curves.counts)
    for number, order in enumerate(curves.orders):
        curve = curves.curve(kind, order)
        points = np.array([estimate(curve[:, point], curves.images) for point in range(len(counts))])
        line = STYLES[number % len(STYLES)]
        (drawn,) = ax.plot(
            counts, points[:, 0], linestyle=line, linewidth=2 if number == 0 else 1.3, label=order
        )
        ax.fill_between(counts, points[:, 1], points[:, 2], color=drawn.get_color(), alpha=0.15, linewidth=0)
    ax.set_xscale("function", functions=(np.sqrt, np.square))
    ticks = [count for count in (0, 1, 4, 16, 64, 256) if count < counts[-1]] + [int(counts[-1])]
    ax.set_xticks(ticks, labels=[str(tick) for tick in ticks])
    ax.minorticks_off()
    done = "hidden" if kind == "deletion" else "shown"
    ax.set(xlim=(0, counts[-1]), ylim=(0, 1.02), xlabel=f"regions {done}, of {counts[-1]}", ylabel="p(word)")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
