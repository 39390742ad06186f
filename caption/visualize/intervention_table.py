"""What an intervention did to every word's probability, as a table for a notebook."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from caption.analysis.interventions.intervene import Intervention

SHADE = "rgba(255, 127, 14, {:.2f})"  # visible on light and on dark pages


def intervention_table(result: Intervention) -> str:
    """Both captions, a column per step, over log p of each token as the model is and under the changes.

    The more a token's log p moves, up or down, the darker its number; steps whose weights were changed are underlined.
    An HTML element with its styles, without scripts.
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
        f'<td style="background: {SHADE.format(0.7 * shade)}">{_number(value)}</td>'
        for value, shade in zip(log_probs, shades, strict=True)
    ]
    return _row(name, cells, _number(log_probs.sum()))


def _row(name: str, cells: list[str], total: str, style: str = "") -> str:
    return (
        f'<tr style="{style}"><th style="text-align: left">{name}</th>{"".join(cells)}<td>{total}</td></tr>\n'
    )


def _number(log_p: float) -> str:
    return f"{log_p:.2f}".replace("-0.00", "0.00").replace("-", "−") if math.isfinite(log_p) else "−∞"
