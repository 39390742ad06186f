"""Changes and searches as JSON: the requests of the page.

    {"kind": "force", "steps": [4], "cells": [[2, 5], [2, 6]]}     at word 4 look at two cells, evenly
    {"kind": "force", "steps": [4], "map": [[0, 0.5, ...], ...]}   at word 4 look as a map says
    {"kind": "force", "steps": [4], "thing": "saxophone"}          at word 4 look where the model's lens sees it
    {"kind": "mask", "steps": null, "cells": [[0, 0]]}             never look into the cell
    {"kind": "erase", "cells": [[0, 0]]}                           the cell's region is not in the image

    {"kind": "beam", "beam_size": 5}      {"kind": "greedy"}      {"kind": "sample", "seed": 3}

`visualize/web/openapi.json` has their schemas; `check` compares a request with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from caption.analysis.interventions import Erase, Force, Mask
from caption.analysis.interventions.selection import amounts, step_of, steps_of, tokens_of
from caption.core.errors import UserError, printable
from caption.results.caption import Caption
from caption.search import BeamSearch, Greedy, Sampling, Search, adjusted
from caption.visualize.page_script import page_description

Change = Force | Mask | Erase
PLACES = ("cells", "map", "thing")
LONGEST_THING = 60
SHOWN = 3
"""Captions of a beam search that a page shows."""


def check(value: Any, schema: str, watch: Callable[[], None] | None = None) -> None:
    """Compare a value with one of the schemas of `page_description`.

    Args:
        value: plain types of JSON.
        schema: its name.
        watch: called for every list in the value. It may raise an exception to stop the comparison, which takes
            seconds for a request of a megabyte.

    Raises:
        UserError: it does not match. The message has the place in the value and the schema's description.
    """
    from jsonschema import Draft202012Validator, validators

    plain_items = Draft202012Validator.VALIDATORS["items"]

    def items(*arguments: Any) -> Iterator[Any]:
        if watch is not None:
            watch()
        yield from plain_items(*arguments)

    described = {"$ref": f"#/components/schemas/{schema}", **page_description()}
    validator = validators.extend(Draft202012Validator, {"items": items})(described)
    error = next(validator.iter_errors(value), None)
    if error is None:
        return
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
    place, wrong = schema.lower() + "".join(parts), printable(str(error.instance)[:200])[:100]
    properties = error.schema.get("properties", {})
    if error.validator == "required":
        missing = next(name for name in error.validator_value if name not in error.instance)
        raise UserError(f"{place} lacks {missing!r}, {properties[missing]['description']}")
    if error.validator == "additionalProperties":
        extra = printable(next(name for name in error.instance if name not in properties))[:100]
        raise UserError(f"{place} has no {extra!r}: it has {', '.join(properties)}")
    raise UserError(f"{place} is {wrong}: it must be {error.schema['description']}")


def change_from(
    request: dict[str, Any], caption: Caption, where: Callable[[str], np.ndarray] | None = None
) -> Change:
    """The change that a request describes.

    Args:
        request: that matches the schema "Change".
        caption: the one on the screen, to which cells and steps refer.
        where: gives the map of a thing, (rows, cols); None = there is no lens.

    Raises:
        UserError: the request is not a valid change.
        ValueError: the caption has no such place.
    """
    kind = request["kind"]
    for name, kinds in (("steps", ("force", "mask")), ("thing", ("force",))):
        if name in request and kind not in kinds:
            raise UserError(f"a change of kind {kind!r} has no {name!r}")
    if sum(place in request for place in PLACES) != 1:
        raise UserError("a change has one place: cells or a map, or, of kind 'force', a thing")
    if "cells" in request:
        place = np.maximum.reduce(
            [amounts(cell, caption) for cell in {tuple(cell) for cell in request["cells"]}]
        )
    elif "map" in request:
        place = amounts(request["map"], caption)
    else:
        thing = printable(request["thing"].strip())[:LONGEST_THING]
        if where is None:
            raise UserError(
                f"this model has no lens that sees things, such as {thing}: caption lens makes one"
            )
        place = where(thing)
    if kind == "erase":
        return Erase(place)
    return (Force if kind == "force" else Mask)(place, at=request.get("steps"))


def request_of(change: Change, caption: Caption) -> dict[str, Any]:
    """The request that describes a change; the inverse of `change_from`.

    That of a word whose map is signed has the magnitudes.

    Raises:
        UserError: no request describes the change.
        ValueError: the caption has no such place, step or word.
    """
    if not isinstance(change, Change):
        raise UserError(f"{type(change).__name__} is not among an explorer's changes: take intervene")
    if isinstance(change, Force) and isinstance(change.where, str):
        place = np.abs(caption.weights[step_of(change.where, tokens_of(caption))].astype(float))
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


def search_from(request: dict[str, Any] | None, default: Search) -> Search:
    """The search that a request of the schema "Search" describes; None = the model's own."""
    if request is None:
        return default
    longest, penalty = default.max_length, default.repeat_penalty
    if request["kind"] == "greedy":
        return Greedy(longest, penalty)
    if request["kind"] == "sample":
        return Sampling(max_length=longest, seed=request.get("seed", 0), repeat_penalty=penalty)
    size = request.get("beam_size", 5)
    beam = default if isinstance(default, BeamSearch) else BeamSearch(1, longest, repeat_penalty=penalty)
    return adjusted(beam, size, min(size, SHOWN))
