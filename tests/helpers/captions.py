"""Captions made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from caption.results.caption import AttentionMaps, Caption


def caption_of(
    words: Sequence[str],
    weights: Any = None,
    size: tuple[int, int] = (500, 375),
    grid: tuple[int, int] = (7, 7),
    **fields: Any,
) -> Caption:
    """A caption of a photo of this size, which the grid covers; its maps are drawn at random by default."""
    if weights is None:
        maps = np.random.default_rng(0).dirichlet(np.full(grid[0] * grid[1], 0.2), len(words))
        weights = maps.reshape(-1, *grid)
    log_probs = np.full(len(words), -0.5)
    fields = {"text": " ".join(words), "log_prob": -9.0, "word_log_probs": log_probs, **fields}
    places = {name: fields.pop(name) for name in ("locations", "points") if name in fields}
    fields["maps"] = AttentionMaps(fields.get("maps", {}), **places)
    return Caption(words=list(words), weights=weights, box=(0, 0, *size), **fields)
