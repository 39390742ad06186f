"""The reliability of a lens drawn."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from caption.analysis.reliability import Reliability
from caption.visualize.layout import new_figure


def plot_reliability(reliabilities: Mapping[str, Reliability]) -> Figure:
    """Draw how often people name what a lens reads with a probability (after Guo et al. 2017, figure 1), a line each.

    A dot is a tenth of the probabilities' range, at its mean; the larger, the more nouns of words it stands for. On the
    diagonal the probabilities are right.

    Raises:
        ValueError: there is nothing to draw.
    """
    if not any(len(each.outcomes) for each in reliabilities.values()):
        raise ValueError("no words were read: there is no reliability to draw")
    fig = new_figure((4.4, 4.0))
    fig.set_layout_engine("constrained")
    ax = fig.add_subplot()
    ax.plot([0, 1], [0, 1], color="0.8", linewidth=1)
    for number, (name, each) in enumerate(reliabilities.items()):
        predicted, named, counts = each.bins()
        label = f"{name}, calibration error {each.error:.2f}"
        ax.plot(predicted, named, color=f"C{number}", label=label, linewidth=1.5)
        ax.scatter(
            predicted, named, s=200 * counts / counts.max(), color=f"C{number}", alpha=0.5, linewidth=0
        )
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability", ylabel="share that people name", aspect="equal")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    return fig
