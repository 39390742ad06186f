"""An intervention drawn: the two captions one above the other, and a table of every word's probability."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from caption.visualize.figure import compare_captions
from caption.visualize.overlay import photos_of

if TYPE_CHECKING:
    from caption.analysis.interventions.intervene import Intervention
    from caption.result import Photo

CHANGED = "tab:orange"  # frame of the steps whose weights were changed
SHADE = "rgba(255, 127, 14, {:.2f})"  # the same colour, visible on light and on dark pages


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
        _note(ax, f"log p {_number(without, 1)} → {_number(under, 1)}")
    for step, (ax, log_p) in enumerate(zip(below, result.changed_log_probs.under, strict=False)):
        _note(ax, f"log p {_number(log_p, 1)}")
        if step in result.steps:
            ax.spines[:].set(visible=True, edgecolor=CHANGED, linewidth=2.5)
    return fig


def _note(ax: Axes, text: str) -> None:
    ax.text(
        0.03, 0.03, text, transform=ax.transAxes, fontsize=8, va="bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
    )  # fmt: skip


def intervention_table(result: Intervention) -> str:
    """An HTML table of both captions, a column per step, with log p of each token without and under the changes.

    The more a token's log p changes, up or down, the darker its cell. Steps whose weights were changed are underlined.
    The table has its styles within it and no scripts.
    """
    original, changed = result.original_log_probs, result.changed_log_probs
    rows = [
        _words("as it is", original.tokens, ()),
        _numbers("log p", original.without),
        _numbers("under the changes", original.under, original.falls),
        _words("changed", changed.tokens, result.steps),
        _numbers("log p", changed.under),
        _numbers("without the changes", changed.without, changed.falls),
    ]
    return f"<table>\n{''.join(rows)}</table>\n<p>{html.escape(result.verdict)}</p>"


def _words(name: str, tokens: Sequence[str], underlined: Iterable[int]) -> str:
    lines = [f"<u>{html.escape(t)}</u>" if i in underlined else html.escape(t) for i, t in enumerate(tokens)]
    return _row(name, [f"<th>{line}</th>" for line in lines], "sum", "border-top: 1px solid")


def _numbers(name: str, log_probs: np.ndarray, moved: np.ndarray | None = None) -> str:
    shades = np.zeros(len(log_probs)) if moved is None else 1 - np.exp(-np.abs(moved))
    cells = [
        f'<td style="background: {SHADE.format(0.7 * shade)}">{_number(value, 2)}</td>'
        for value, shade in zip(log_probs, shades, strict=True)
    ]
    return _row(name, cells, _number(log_probs.sum(), 2))


def _row(name: str, cells: list[str], total: str, style: str = "") -> str:
    return (
        f'<tr style="{style}"><th style="text-align: left">{name}</th>{"".join(cells)}<td>{total}</td></tr>\n'
    )


def _number(log_p: float, digits: int) -> str:
    # Adding 0 turns −0.0 into 0.0.
    return f"{round(log_p, digits) + 0.0:.{digits}f}".replace("-", "−").replace("inf", "∞")
