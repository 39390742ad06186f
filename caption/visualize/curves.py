"""Deletion and insertion curves: what becomes of a word when the regions it was read from go, or come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

if TYPE_CHECKING:
    from caption.analysis.faithfulness.curves import Erasure, Kind

# Told apart in grey, too: attention is the line that everything is compared with.
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)))


def curve_plot(ax: Axes, erasure: Erasure, kind: Kind, orders: Sequence[str] | None = None) -> Axes:
    """Draw the mean probability of the words against the number of regions hidden or shown, one line per order.

    Bands are 95 % intervals over images. The axis of regions is stretched at its start, by a square root, because
    attention puts what matters into a few regions.

    Args:
        ax: drawn on and returned.
        erasure: the curves; N >= 1 words.
        kind: "deletion" or "insertion".
        orders: which lines; None = all.

    Raises:
        ValueError: there are no words.
    """
    from caption.analysis.means import estimate

    if not len(erasure):
        raise ValueError("there are no words whose curves could be drawn")
    counts = np.array(erasure.counts)
    for number, order in enumerate(erasure.orders if orders is None else orders):
        curve = erasure.curve(kind, order)
        points = np.array([estimate(curve[:, point], erasure.images) for point in range(len(counts))])
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
