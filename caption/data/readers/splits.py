"""Splits for data that has none: every image goes where a hash of its name says, in every run and on every machine."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

from caption.data.readers.captions import SPLIT_NAMES
from caption.data.readers.captions_checks import check_split_names
from caption.errors import DataError


def split_of(name: str, fractions: Mapping[str, float]) -> str:
    """The split of an image.

    u is the first 53 bits of SHA-256 of the name in UTF-8, as a number in [0, 1). train has the u below its
    fraction, val those from there on, test the rest. So no image moves when others come or go, and the splits' sizes
    are as close to the fractions as chance allows: within some 2·sqrt(n·f·(1 - f)) of the n·f images expected.

    Args:
        name: the image, as the caption file spells it.
        fractions: by split, of sum 1; see `check_fractions`.
    """
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    place = (int.from_bytes(digest[:8], "big") >> 11) / 2**53  # 53 bits: what a float holds exactly
    given = [split for split in SPLIT_NAMES if split in fractions]
    end = 0.0
    for split in given[:-1]:
        end += fractions[split]
        if place < end:
            return split
    return given[-1]


def check_fractions(fractions: Mapping[str, float]) -> None:
    """Raise a DataError unless the fractions are of splits, positive, and of sum 1."""
    check_split_names(fractions)
    if not all(fraction > 0 for fraction in fractions.values()) or not math.isclose(
        sum(fractions.values()), 1, abs_tol=1e-6
    ):
        shares = ", ".join(f"{split} {fraction:g}" for split, fraction in fractions.items())
        raise DataError(f"the fractions of the splits ({shares}) must be above 0 and add up to 1.")
