"""Changes and searches as JSON: what the page asks for.

    {"kind": "force", "steps": [4], "cells": [[2, 5], [2, 6]]}     at word 4 look at two cells, evenly
    {"kind": "force", "steps": [4], "map": [[0, 0.5, ...], ...]}   at word 4 look as a map says
    {"kind": "force", "steps": [4], "thing": "saxophone"}          at word 4 look where the model's lens sees it
    {"kind": "mask", "steps": null, "cells": [[0, 0]]}             look into the cell at no word
    {"kind": "erase", "cells": [[0, 0]]}                           the cell's region is not in the image

    {"kind": "beam", "beam_size": 5}      {"kind": "greedy"}      {"kind": "sample", "seed": 3}

`web/data.schema.json` states the same for other programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from caption.analysis.interventions import Erase, Force, Mask
from caption.analysis.interventions.selection import amounts, step_of, steps_of, tokens_of
from caption.errors import UserError, printable
from caption.result import Caption
from caption.search import BeamSearch, Greedy, Sampling, Search

Change = Force | Mask | Erase
KINDS = ("force", "mask", "erase")
MOST_CHANGES = 100
MOST_BEAMS = 20
LONGEST_THING = 60
SHOWN = 3
"""Hypotheses of a beam that are shown."""


def change_from(request: Any, caption: Caption, where: Callable[[str], np.ndarray] | None = None) -> Change:
    """The change that a request describes.

    Args:
        request: from JSON.
        caption: the one on the screen; cells and steps are its.
        where: the map of a thing, (rows, cols); None = there is no lens.

    Raises:
        UserError: it describes none.
    """
    if not isinstance(request, dict) or request.get("kind") not in KINDS:
        raise UserError(f"a change has a kind, one of {', '.join(KINDS)}: {str(request)[:100]}")
    kind = request["kind"]
    known = {"kind", "cells", "map"} | {"force": {"steps", "thing"}, "mask": {"steps"}, "erase": set()}[kind]
    if extra := set(request) - known:
        raise UserError(f"a change of kind {kind!r} has no {sorted(extra)[0]!r}")
    place = _place(request, caption, where)
    if kind == "erase":
        return Erase(place)
    steps = request.get("steps")
    if steps is not None and not (isinstance(steps, list) and all(type(step) is int for step in steps)):
        raise UserError("the steps of a change are a list of whole numbers, or null for all")
    return Force(place, at=steps) if kind == "force" else Mask(place, at=steps)


def request_of(change: Change, caption: Caption) -> dict[str, Any]:
    """The request that describes a change; the inverse of `change_from`.

    Raises:
        ValueError: the caption has no such place, step or word.
    """
    if isinstance(change, Force) and isinstance(change.where, str):
        place = caption.weights[step_of(change.where, tokens_of(caption))].astype(float)
    else:
        place = amounts(change.where, caption)
    where = {"map": place.tolist()}
    if (place == place.max()).sum() == np.count_nonzero(place):
        where = {"cells": np.argwhere(place).tolist()}
    if isinstance(change, Erase):
        return {"kind": "erase", **where}
    steps = steps_of(change.at, caption)
    kind = "force" if isinstance(change, Force) else "mask"
    return {"kind": kind, "steps": None if steps is None else sorted(steps), **where}


def search_from(request: Any, default: Search) -> Search:
    """The search that a request describes; None = the model's own.

    Raises:
        UserError: it describes none.
    """
    if request is None:
        return default
    kind = request.get("kind") if isinstance(request, dict) else None
    longest = getattr(default, "max_length", 30)
    if kind == "greedy":
        return Greedy(max_length=longest)
    if kind == "beam":
        size = _number(request.get("beam_size", 5), "beam_size", 1, MOST_BEAMS)
        power = getattr(default, "length_normalization", 0.0)
        return BeamSearch(size, longest, power, candidates=min(size, SHOWN))
    if kind == "sample":
        return Sampling(max_length=longest, seed=_number(request.get("seed", 0), "seed", 0, 2**31))
    raise UserError(f"a search has a kind, greedy, beam or sample: {str(request)[:100]}")


def _number(value: Any, name: str, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise UserError(f"{name} is {str(value)[:100]}: it must be a whole number from {least} to {most}")
    return value


def _place(
    request: dict[str, Any], caption: Caption, where: Callable[[str], np.ndarray] | None
) -> np.ndarray:
    """(rows, cols) how much of each cell is meant."""
    rows, cols = caption.weights.shape[1:]
    if len({"cells", "map", "thing"} & set(request)) != 1:
        raise UserError("a change has either cells or a map, or, of kind 'force', a thing")
    if "thing" in request:
        thing = request["thing"]
        if not isinstance(thing, str) or not thing.strip():
            raise UserError("a thing is a noun, such as dog")
        name = printable(thing.strip())[:LONGEST_THING]
        if where is None:
            raise UserError(
                f"this model has no lens that sees things, such as {name}: caption lens makes one"
            )
        return where(name)
    if "map" in request:
        try:
            place = np.asarray(request["map"], dtype=np.float64)
        except (TypeError, ValueError):
            place = np.empty(0)
        if place.shape != (rows, cols):
            raise UserError(f"a map is {rows} lists of {cols} numbers")
        return place
    cells = request["cells"]
    place = np.zeros((rows, cols))
    if not isinstance(cells, list) or not cells:
        raise UserError("cells is a list of at least one [row, column]")
    for cell in cells:
        if not (isinstance(cell, list) and len(cell) == 2 and all(type(number) is int for number in cell)):
            raise UserError(f"a cell is [row, column], not {str(cell)[:100]}")
        if not (0 <= cell[0] < rows and 0 <= cell[1] < cols):
            raise UserError(f"there is no cell {cell} in a grid of {rows} rows and {cols} columns")
        place[cell[0], cell[1]] = 1
    return place
