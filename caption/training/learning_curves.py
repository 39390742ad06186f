"""Learning curves of several training runs."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from caption.training.watched import MODES
from caption.visualize.figure_file import NotebookFigure

PANELS = {
    "val/CIDEr": "CIDEr, validation",
    "val/BLEU-4": "BLEU-4, validation",
    "val/NLL": "NLL per word, validation",
    "train/loss": "loss, training",
}
LINES = ("-", "--", "-.", ":")
MOST_RUNS = 20


def plot_learning_curves(runs: Mapping[str, Mapping[str, Mapping[float, float]]]) -> Figure:
    """Draw the curves of runs, a panel for each of `PANELS` that a run has. A dot marks the best epoch of scores.

    Args:
        runs: by name, the curves of each by the name of the number, each a value by epoch from 0 (the axis
            counts from 1).

    Returns:
        the figure; `save_figure` writes it.

    Raises:
        ValueError: no run has such a curve, or there are more runs than can be told apart.
    """
    shown = [number for number in PANELS if any(curves.get(number) for curves in runs.values())]
    if not shown:
        raise ValueError("there is no curve to draw")
    if len(runs) > MOST_RUNS:
        raise ValueError(f"{len(runs)} curves cannot be told apart: give at most {MOST_RUNS}")
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    fig = NotebookFigure(figsize=(4.6 * columns, 2.9 * rows + 0.5), layout="constrained")
    panels = fig.subplots(rows, columns, squeeze=False).flat
    for ax, number in zip(panels, shown, strict=False):
        for place, (name, curves) in enumerate(runs.items()):
            curve = dict(sorted(curves.get(number, {}).items()))
            line = LINES[place // 10 % len(LINES)]
            ax.plot(
                [epoch + 1 for epoch in curve],
                list(curve.values()),
                line,
                color=f"C{place % 10}",
                linewidth=1.5,
                label=name,
            )
            if curve and MODES.get(number) == "max":
                best = max(curve, key=lambda epoch: curve[epoch])
                ax.plot([best + 1], [curve[best]], "o", color=f"C{place % 10}", markersize=5)
        ax.set_title(PANELS[number], fontsize=10, loc="left")
        ax.set_xlabel("epoch", fontsize=9)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="0.9", linewidth=0.6)
    for ax in list(panels):
        ax.set_visible(False)
    handles, labels = fig.axes[0].get_legend_handles_labels()
    legend = fig.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    return fig
