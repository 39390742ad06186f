"""Selection of places in a photo, and of steps of a caption by its words."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from caption.analysis.covered_cells import coverage
from caption.data.box_faults import boxes_fault
from caption.results.caption import Caption
from caption.text.tokenizer import nfc
from caption.text.vocabulary import END, SPECIAL_TOKENS

END_WORD = SPECIAL_TOKENS[END]

Place = Any
"""A cell (row, col), counted from 0; a box (left, top, right, bottom) in the photo's pixels; or a map (rows, cols) of
numbers that are not negative."""

Steps = SupportsIndex | str | Sequence[SupportsIndex | str] | None
"""Steps of a caption, counted from 0, as numbers or as their words; None = every step. A finished caption has one more
step than words: that of the end token, "<end>"."""

LEAST_COVER = 1e-6
"""The part of a cell that a box must cover to touch it: edges that should coincide may differ by rounding."""


def amounts(place: Place, caption: Caption) -> np.ndarray:
    """The amount of each region that a place selects.

    Args:
        place: see `Place`.
        caption: of the photo; its weights and box give the grid.

    Returns:
        (rows, cols) float64: 1 at a cell, 0 elsewhere; the part of each region's area that the box covers; or the map.

    Raises:
        ValueError: it is not a place, or it lies outside the grid.
    """
    rows, cols = caption.weights.shape[1:]
    try:
        values = np.asarray(place, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.empty(0)
    if values.shape == (2,):
        return _cell(place, rows, cols)
    if values.shape == (4,):
        return _box(values, caption)
    if values.shape == (rows, cols):
        if not np.isfinite(values).all() or (values < 0).any() or not values.any():
            raise ValueError("a map holds numbers that are not negative, not all of them 0")
        return values
    actual = f"an array of shape {values.shape}" if values.size > 4 else repr(place)
    raise ValueError(
        "a place is a cell (row, col), a box (left, top, right, bottom) in the photo's pixels, or a map of "
        f"{rows} x {cols} numbers, not {actual}"
    )


def touched(place: Place, caption: Caption) -> np.ndarray:
    """(rows, cols) bool: the regions that have a part in the place; arguments and errors as for `amounts`."""
    return amounts(place, caption) > LEAST_COVER


def tokens_of(caption: Caption) -> tuple[str, ...]:
    """The tokens of a caption's steps: its words and, if it is finished, the end token."""
    return (*caption.words, END_WORD) if caption.finished else tuple(caption.words)


def steps_of(at: Steps, caption: Caption) -> frozenset[int] | None:
    """The numbers of the selected steps, or None for all, also those of a longer caption.

    Raises:
        ValueError: a step that the caption does not have, a word that it does not contain or contains more than once.
    """
    if at is None:
        return None
    try:
        several: list[Any] = [at] if isinstance(at, str) else list(at)  # type: ignore[arg-type]
    except TypeError:
        several = [at]
    tokens = tokens_of(caption)
    if not several:
        raise ValueError("no step is selected: leave `at` out for all of them")
    return frozenset(step_of(step, tokens) for step in several)


def step_of(at: SupportsIndex | str, tokens: Sequence[str]) -> int:
    """The number of one step; errors as for `steps_of`."""
    if isinstance(at, str):
        steps = [step for step, token in enumerate(tokens) if nfc(token) == nfc(at)]
        if not steps:
            raise ValueError(f"{at!r} is not in the caption {' '.join(tokens)!r}")
        if len(steps) > 1:
            raise ValueError(f"{at!r} is at the steps {steps} of the caption: select one by its number")
        return steps[0]
    try:
        step = operator.index(at)
    except TypeError:
        raise ValueError(f"a step is a number or a word of the caption, not {at!r}") from None
    if not 0 <= step < len(tokens):
        range_ = (
            f"they run from 0 ({tokens[0]!r}) to {len(tokens) - 1} ({tokens[-1]!r})"
            if tokens
            else "it has none"
        )
        raise ValueError(f"the caption has no step {step}: {range_}")
    return step


def _cell(cell: Sequence[SupportsIndex], rows: int, cols: int) -> np.ndarray:
    try:
        row, col = (operator.index(number) for number in cell)
    except TypeError:
        raise ValueError(f"a cell is (row, col) in whole numbers, not {tuple(cell)}") from None
    if not (0 <= row < rows and 0 <= col < cols):
        raise ValueError(f"there is no cell ({row}, {col}) in a grid of {rows} rows and {cols} columns")
    amount = np.zeros((rows, cols))
    amount[row, col] = 1
    return amount


def _box(box: np.ndarray, caption: Caption) -> np.ndarray:
    left, top, right, bottom = (float(side) for side in box)
    if fault := boxes_fault([("a place", {"": [(left, top, right, bottom)]}, caption.extent)]):
        raise ValueError(fault)
    rows, cols = caption.weights.shape[1:]
    amount = coverage(rows, cols, caption.box, [(left, top, right, bottom)], caption.seen)
    if not (amount > LEAST_COVER).any():
        raise ValueError(
            f"the box {(left, top, right, bottom)} lies outside the part of the photo that the model sees, "
            f"{caption.seen or caption.box}"
        )
    return amount
