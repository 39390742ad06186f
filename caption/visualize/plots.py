"""Plots: the alignment matrix, the gate along the sentence, deletion and insertion curves, reliability."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from caption.metrics.significance import estimate
from caption.visualize.layout import new_figure
from caption.visualize.scale import scale_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from caption.analysis.faithfulness.curves import FaithfulnessCurves, Kind
    from caption.analysis.lens.calibration import Reliability
    from caption.result import Caption

# Distinct in grey as well. Attention comes first: it is what everything is compared with.
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 2)))


def alignment_matrix(ax: Axes, caption: Caption) -> Axes:
    """Draw α as words x regions (after Bahdanau et al. 2015, figure 3), on one scale stated under the matrix.

    The darker a cell, the more attention; signed weights are red above 0 and blue below. Regions run row by row through
    the grid, from the upper left cell; a line separates the rows. For a single map give `caption.with_map(...)`.

    Args:
        ax: drawn on and returned.
        caption: T >= 1 words over a grid of rows x cols.

    Raises:
        ValueError: the caption has no words.
    """
    steps, rows, cols = caption.weights.shape
    if steps == 0:
        raise ValueError("a caption without words has no alignment to draw")
    scale = scale_of(caption.weights, signed=caption.properties.signed)
    cmap, low, high = ("RdBu_r", "blue", "red") if scale.signed else ("Greys", "white", "black")
    matrix = caption.weights.reshape(steps, rows * cols)
    ax.imshow(matrix, cmap=cmap, vmin=scale.low, vmax=scale.high, aspect="auto", interpolation="nearest")
    for column in np.arange(cols, rows * cols, cols):
        ax.axvline(column - 0.5, color="0.6", linewidth=0.5)
    ax.set_yticks(range(steps))
    ax.set_yticklabels(caption.words, parse_math=False)
    ax.set_xticks([row * cols for row in range(rows)])
    ax.set_xticklabels([str(row + 1) for row in range(rows)])
    ax.set_xlabel(f"region, by row of the grid; {low} α = {scale.low:.2g}, {high} α = {scale.high:.2g}")
    return ax


def gate_plot(ax: Axes, caption: Caption) -> Axes:
    """Draw the gate β of each word (Xu et al. 2015, section 4.2.1) as a bar.

    At 0 the image is ignored, at 1 its context vector enters in full.

    Args:
        ax: drawn on and returned.
        caption: with gates.

    Raises:
        ValueError: the model that wrote the caption has no gate.
    """
    if caption.gates is None:
        raise ValueError("this caption was written without a gate")
    steps = range(len(caption.words))
    ax.bar(steps, caption.gates, width=0.7, color="0.45")
    ax.set_xticks(steps)
    ax.set_xticklabels(caption.words, rotation=40, ha="right", rotation_mode="anchor", parse_math=False)
    ax.set(ylim=(0, 1), ylabel="gate β", xlim=(-0.6, max(len(steps), 1) - 0.4))
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_curves(curves: FaithfulnessCurves) -> Figure:
    """Draw `curve_plot` of both kinds side by side.

    Raises:
        ValueError: there are no words.
    """
    fig = new_figure((8.0, 3.2))
    fig.set_layout_engine("constrained")
    axes = fig.subplots(1, 2, sharey=True)
    kinds: tuple[Kind, ...] = ("deletion", "insertion")
    for ax, kind in zip(axes, kinds, strict=True):
        curve_plot(ax, curves, kind)
        ax.set_title(kind, fontsize=10)
        ax.label_outer()
    axes[1].legend(title="order", frameon=False, fontsize=8, loc="lower right")
    return fig


def plot_reliability(reliabilities: Mapping[str, Reliability]) -> Figure:
    """Draw how often people name what a lens reads with a probability (after Guo et al. 2017, figure 1), a line each.

    A dot is a tenth of the probabilities' range, at its mean; the larger, the more nouns of words it stands for. On the
    diagonal the probabilities are right.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not any(len(each.named) for each in reliabilities.values()):
        raise ValueError("no words were read: there is no reliability to draw")
    fig = new_figure((4.4, 4.0))
    fig.set_layout_engine("constrained")
    ax = fig.add_subplot()
    ax.plot([0, 1], [0, 1], color="0.8", linewidth=1)
    for number, (name, each) in enumerate(reliabilities.items()):
        predicted, named, counts = each.bins()
        label = f"{name}, calibration error {each.error:.2f}"
        ax.plot(
            predicted, named, STYLES[number % len(STYLES)], color=f"C{number}", label=label, linewidth=1.5
        )
        ax.scatter(
            predicted, named, s=200 * counts / counts.max(), color=f"C{number}", alpha=0.5, linewidth=0
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="share that people name", aspect="equal")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    return fig


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
