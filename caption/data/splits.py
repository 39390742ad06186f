"""Splits: training, validation and test images. Data that has none is divided by fractions."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from caption.core.errors import DataError

SPLIT_NAMES = ("train", "val", "test")


@dataclass(frozen=True)
class CaptionedImage:
    """One image and its captions."""

    id: int | str
    """The key of its results and features, unique within its split."""
    path: Path
    """The image file; it existed when the captions were read."""
    captions: tuple[str, ...]
    """At least one, with case and punctuation, without spaces at the ends."""

    def within(self, split: str) -> str:
        """The image in a message: its id and split."""
        return f"image {self.id!r} ({split})"


Splits = dict[str, list[CaptionedImage]]
"""Images by split: keys among "train", "val" and "test", no empty list."""


def check_split_names(names: Iterable[str]) -> None:
    """Raise a DataError for a split other than train, val and test."""
    for name in names:
        if name not in SPLIT_NAMES:
            raise DataError(f"'{name}' is not a split: the splits are called {', '.join(SPLIT_NAMES)}.")


def split_by_fraction(
    images: Iterable[tuple[str, CaptionedImage]], fractions: Mapping[str, float] | None
) -> Splits:
    """Divide images by a hash of their names, see `hashed_split`; without fractions, all are training images.

    Args:
        images: each with its name as the caption file spells it.
        fractions: by split, of sum 1.

    Raises:
        DataError: see `check_fractions`.
    """
    fractions = fractions or {"train": 1.0}
    check_fractions(fractions)
    splits: Splits = {split: [] for split in SPLIT_NAMES if split in fractions}
    for name, image in images:
        splits[hashed_split(name, fractions)].append(image)
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
