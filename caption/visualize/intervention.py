"""A caption as the model says it, above the one it says when its attention is changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from caption.visualize.comparison import compare_captions
from caption.visualize.photo import Photo, photos_of

if TYPE_CHECKING:
    from caption.analysis.interventions.intervene import Intervention

CHANGED = "tab:orange"


def plot_intervention(result: Intervention, image: Photo | None = None, **options: Any) -> Figure:
    """Draw both captions with `compare_captions`; on every word's panel stands its log-probability.

    For the words of the original caption that is log p as the model is, and what it becomes under the changes. A
    coloured frame marks the steps whose weights were changed.

    Args:
        result: what came of an intervention.
        image: the photo; by default the one that the captions carry.
        options: passed on to `plot_caption`, other than `fig`.

    Raises:
        ValueError: there is no photo, or options that `plot_caption` refuses.
        caption.errors.ImageError: the photo cannot be opened.
    """
    (photo,) = photos_of([result.original], None if image is None else [image])
    fig = compare_captions({"as it is": result.original, "changed": result.changed}, photo, **options)
    above, below = fig.subfigs
    told = result.original_log_probs
    for ax, before, after in zip(_panels(above), told.without, told.under, strict=False):
        _note(ax, f"log p {_number(before)} → {_number(after)}")
    for step, (ax, log_p) in enumerate(zip(_panels(below), result.changed_log_probs.under, strict=False)):
        _note(ax, f"log p {_number(log_p)}")
        if step in result.steps:
            _frame(ax)
    return fig


def _panels(part: SubFigure) -> list[Axes]:
    """Those of the words: the photo comes first, the scale last."""
    return part.axes[1:-1]


def _number(log_p: float) -> str:
    return f"{log_p:.1f}".replace("-0.0", "0.0").replace("-", "−")


def _note(ax: Axes, text: str) -> None:
    ax.text(
        0.03, 0.03, text, transform=ax.transAxes, fontsize=8, va="bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )  # fmt: skip


def _frame(ax: Axes) -> None:
    ax.spines[:].set(visible=True, edgecolor=CHANGED, linewidth=2.5)
