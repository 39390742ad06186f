"""An intervention drawn: the two captions one above the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from caption.analysis.interventions.log_probs import log_p_text
from caption.visualize.figure import compare_captions
from caption.visualize.overlay import photos_of

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
    log_probs = result.original_log_probs
    for ax, without, under in zip(above, log_probs.without, log_probs.under, strict=False):
        _note(ax, f"log p {log_p_text(without, 1)} → {log_p_text(under, 1)}")
    for step, (ax, log_p) in enumerate(zip(below, result.changed_log_probs.under, strict=False)):
        _note(ax, f"log p {log_p_text(log_p, 1)}")
        if step in result.steps:
            ax.spines[:].set(visible=True, edgecolor=CHANGED, linewidth=2.5)
    return fig


def _note(ax: Axes, text: str) -> None:
    ax.text(
        0.03, 0.03, text, transform=ax.transAxes, fontsize=8, va="bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )  # fmt: skip
