"""An intervention as an HTML table: every word's log-probability with and without the changes."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from caption.analysis.interventions.intervene import Intervention

SHADE = "rgba(255, 127, 14, {:.2f})"  # Matplotlib's orange, visible on light and on dark pages


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
        f'<td style="background: {SHADE.format(0.7 * shade)}">{log_p_text(value, 2)}</td>'
        for value, shade in zip(log_probs, shades, strict=True)
    ]
    return _row(name, cells, log_p_text(log_probs.sum(), 2))


def _row(name: str, cells: list[str], total: str, style: str = "") -> str:
    return (
        f'<tr style="{style}"><th style="text-align: left">{name}</th>{"".join(cells)}<td>{total}</td></tr>\n'
    )


def log_p_text(log_p: float, digits: int) -> str:
    """A log-probability to read: rounded, with a true minus sign."""
    # Adding 0 turns −0.0 into 0.0.
    return f"{round(log_p, digits) + 0.0:.{digits}f}".replace("-", "−").replace("inf", "∞")
