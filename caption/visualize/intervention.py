"""An intervention drawn: the two captions one above the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from caption.analysis.interventions.log_probs import log_p_text
from caption.visualize.figure import compare_captions
from caption.visualize.overlay import photos_of
from caption.visualize.words import steps_of

if TYPE_CHECKING:
    from caption.analysis.interventions.intervene import Intervention
    from caption.data.decoding import Photo

CHANGED = "tab:orange"  # frame of the steps whose weights were changed


def plot_intervention(result: Intervention, image: Photo | None = None, **options: Any) -> Figure:
    """Draw both captions with `compare_captions`, with its log-probability on every word's panel.

    For a word of the original caption that is log p without the changes → log p under the changes. A coloured frame
    marks the steps whose weights were changed.

    Args:
        result: the outcome of an intervention.
        image: the photo; by default the one that the captions carry.
        options: passed on to `compare_captions`.

    Raises:
        ValueError: there is no photo, or options that `compare_captions` refuses.
        caption.errors.ImageError: the photo cannot be opened.
    """
    (photo,) = photos_of([result.original], None if image is None else [image])
    fig = compare_captions({"as it is": result.original, "changed": result.changed}, photo, **options)
    # The first axes hold the photo, the last the scale.
    above, below = (part.axes[1:-1] for part in fig.subfigs)
    words = options.get("words")
    log_probs = result.original_log_probs
    for ax, step in zip(above, steps_of(result.original, words, strict=False), strict=True):
        _note(ax, f"log p {log_p_text(log_probs.without[step], 1)} → {log_p_text(log_probs.under[step], 1)}")
    for ax, step in zip(below, steps_of(result.changed, words, strict=False), strict=True):
        _note(ax, f"log p {log_p_text(result.changed_log_probs.under[step], 1)}")
        if step in result.steps:
            ax.spines[:].set(visible=True, edgecolor=CHANGED, linewidth=2.5)
    return fig


def _note(ax: Axes, text: str) -> None:
    ax.text(
        0.03, 0.03, text, transform=ax.transAxes, fontsize=8, va="bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )  # fmt: skip
