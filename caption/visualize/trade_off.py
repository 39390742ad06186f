"""The trade-off between captions and maps: what models score against where they look, one point for each model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORES = ("BLEU-4", "CIDEr")
MEASURES = ("pointing accuracy", "entropy", "faithfulness")
MARKERS = "os^Dv<>Ph*"


def trade_off(models: Mapping[str, Mapping[str, float]], chance: Mapping[str, float] | None = None) -> Figure:
    """Draw BLEU-4 and CIDEr against pointing accuracy, entropy and faithfulness of the maps.

    Args:
        models: for each model, its numbers by `SCORES` and `MEASURES`. A model is left out of the panels whose numbers
            it lacks, and a panel without models is left out.
        chance: for some of `MEASURES`, the value of maps that know nothing, drawn as a line.

    Raises:
        ValueError: no model has a score and a measure.
    """
    from matplotlib.figure import Figure

    found = {
        (score, measure): {
            name: (each[measure], each[score])
            for name, each in models.items()
            if {measure, score} <= each.keys()
        }
        for score in SCORES
        for measure in MEASURES
    }
    scores = [score for score in SCORES if any(found[score, measure] for measure in MEASURES)]
    measures = [measure for measure in MEASURES if any(found[score, measure] for score in SCORES)]
    if not scores:
        raise ValueError(f"no model has one of {', '.join(SCORES)} and one of {', '.join(MEASURES)}")
    fig = Figure(figsize=(0.8 + 3.1 * len(measures), 0.9 + 2.6 * len(scores)), layout="constrained")
    rows = fig.subplots(len(scores), len(measures), squeeze=False, sharex="col", sharey="row")
    drawn: dict[str, Any] = {}
    for axes, score in zip(rows, scores, strict=True):
        for ax, measure in zip(axes, measures, strict=True):
            for number, name in enumerate(models):
                if name in found[score, measure]:
                    x, y = found[score, measure][name]
                    marker = MARKERS[number % len(MARKERS)]
                    drawn[name] = ax.scatter([x], [y], marker=marker, color=f"C{number % 10}", s=40, zorder=2)
            if chance and measure in chance:
                ax.axvline(chance[measure], color="0.5", linestyle=":", linewidth=1)
            ax.set(xlabel=measure, ylabel=score)
            ax.label_outer()
            ax.grid(alpha=0.3)
            ax.spines[["top", "right"]].set_visible(False)
    names = [name for name in models if name in drawn]
    fig.legend([drawn[name] for name in names], names, loc="outside right upper", frameon=False, fontsize=8)
    return fig
