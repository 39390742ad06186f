"""Learning curves: scores and losses of each epoch, a colour for each model and a line for each of its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from caption.visualize import save_figure

Curve = Sequence[Mapping[str, float]]
"""Numbers of each epoch, by name."""
PANELS = {"CIDEr": ("CIDEr",), "NLL per word": ("dev NLL", "train NLL")}
"""Names of numbers by the title of their panel."""
STYLES = ("-", ":")
MARKERS = ("o", "^", "s")
"""There are ten colours; more models have another marker."""


def draw(models: Mapping[str, Sequence[Curve]], path: Path) -> None:
    """Write the figure of models by their titles, each with the curves of its seeds; none without curves."""
    from matplotlib.figure import Figure

    models = {title: curves for title, curves in models.items() if curves}
    if not models:
        return
    fig = Figure(figsize=(9, 3.6), layout="constrained")
    lines = {}
    for ax, (title, names) in zip(fig.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        for number, (model, curves) in enumerate(models.items()):
            look = {
                "color": f"C{number % 10}",
                "marker": MARKERS[number // 10 % len(MARKERS)],
                "markersize": 4,
            }
            for curve in curves:
                for name, style in zip(names, STYLES, strict=False):
                    values = [epoch.get(name, float("nan")) for epoch in curve]
                    epochs = range(1, len(values) + 1)
                    (lines[model],) = ax.plot(epochs, values, style, **look)
        ax.set(xlabel="epoch", ylabel=title, title=", ".join(f"{n} {'─┈'[k]}" for k, n in enumerate(names)))
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    fig.legend(list(lines.values()), list(lines), loc="outside right upper", frameon=False, fontsize=8)
    save_figure(fig, path)
