"""The splits of data that has none: a fraction of the images for each."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping

from caption.data.readers.captions import SPLIT_NAMES, CaptionedImage, Splits, check_split_names
from caption.errors import DataError


def divided(images: Iterable[tuple[str, CaptionedImage]], fractions: Mapping[str, float] | None) -> Splits:
    """Images in splits; all are training images without fractions.

    Args:
        images: each with its name as the caption file spells it.
        fractions: by split, of sum 1.

    Raises:
        DataError: see `check_fractions`.
    """
    check_fractions(fractions or {"train": 1.0})
    splits: Splits = {split: [] for split in SPLIT_NAMES if split in (fractions or {"train": 1.0})}
    for name, image in images:
        splits[hashed_split(name, fractions) if fractions else "train"].append(image)
    return splits


def hashed_split(name: str, fractions: Mapping[str, float]) -> str:
    """The split of an image, by a hash of its name: the same in every run and on every machine.

    u is the first 53 bits of SHA-256 of the name in UTF-8, as a number in [0, 1). Images with u below the fraction of
    train are training images, those with u in the next fraction are val, the rest test. Adding or removing images
    does not move others. The size of a split of fraction f of n images has mean n·f and standard deviation
    sqrt(n·f·(1 - f)).

    Args:
        name: the image, as the caption file spells it.
        fractions: by split, of sum 1; see `check_fractions`.
    """
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    u = (int.from_bytes(digest[:8], "big") >> 11) / 2**53  # a float holds 53 bits exactly
    splits = [split for split in SPLIT_NAMES if split in fractions]
    end = 0.0
    for split in splits[:-1]:
        end += fractions[split]
        if u < end:
            return split
    return splits[-1]


def check_fractions(fractions: Mapping[str, float]) -> None:
    """Raise a DataError unless the keys are splits and the fractions are positive, of sum 1."""
    check_split_names(fractions)
    total = sum(fractions.values())
    if not all(fraction > 0 for fraction in fractions.values()) or not math.isclose(total, 1, abs_tol=1e-6):
        shares = ", ".join(f"{split} {fraction:g}" for split, fraction in fractions.items())
        raise DataError(f"the fractions of the splits ({shares}) must be above 0 and add up to 1.")
