"""The log-probability of every word with and without the changes of an intervention, and an HTML table of them."""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

SHADE = "rgba(255, 127, 14, {:.2f})"  # Matplotlib's orange, visible on light and on dark pages


@dataclass(frozen=True, eq=False)
class LogProbs:
    """The natural log-probability of each of a caption's N tokens, given those before it."""

    tokens: tuple[str, ...]
    """(N,) the words and, if the caption is finished, the end token."""
    without: np.ndarray
    """(N,) without the changes."""
    under: np.ndarray
    """(N,) under the changes."""

    @property
    def falls(self) -> np.ndarray:
        """(N,) the fall of each under the changes, in nats; negative where it rises."""
        return self.without - self.under


def log_probs_table(original: LogProbs, changed: LogProbs, steps: Collection[int], verdict: str) -> str:
    """An HTML table of both captions, a column per step, with log p of each token without and under the changes.

    The more a token's log p changes, up or down, the darker its cell. The table has its styles within it and no
    scripts.

    Args:
        original: of the caption of the unedited model.
        changed: of the caption under the changes.
        steps: those of the changed caption at which the weights were edited, which are underlined.
        verdict: a sentence below the table.
    """
    rows = [
        _words("as it is", original.tokens, ()),
        _numbers("log p", original.without),
        _numbers("under the changes", original.under, original.falls),
        _words("changed", changed.tokens, steps),
        _numbers("log p", changed.under),
        _numbers("without the changes", changed.without, changed.falls),
    ]
    return f"<table>\n{''.join(rows)}</table>\n<p>{html.escape(verdict)}</p>"


def _words(name: str, tokens: Sequence[str], underlined: Collection[int]) -> str:
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
