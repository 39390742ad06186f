"""Records of tensors: what decoders carry from word to word and what search reorders.

A record is a tensor, None, or a NamedTuple, tuple or list of records. Search knows nothing else about a
decoder's state, so the two can change independently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

Record = Any  # Tensor | None | NamedTuple | tuple | list of records; not expressible without recursion


class State(NamedTuple):
    """What a decoder carries between two words, sorted by how search may move it."""

    shared: Record
    """One entry per image, tensors (B, ...): the projected regions. Never copied per hypothesis."""
    carried: Record
    """One entry per hypothesis, tensors (B, K, ...): LSTM state, whatever the attention carries."""
    trace: Record
    """One entry per hypothesis, tensors (B, K, ...): what is known about the word just scored (α, β).
    Search keeps it for every word and returns it with the caption."""


def map_record(function: Callable[[Tensor], Tensor], record: Record) -> Record:
    """The same record with `function` applied to each of its tensors."""
    if record is None:
        return None
    if isinstance(record, Tensor):
        return function(record)
    if isinstance(record, tuple) and hasattr(record, "_fields"):
        return type(record)(*(map_record(function, entry) for entry in record))
    if isinstance(record, (tuple, list)):
        return type(record)(map_record(function, entry) for entry in record)
    raise TypeError(
        f"a record holds tensors, None, named tuples, tuples and lists, not {type(record).__name__}"
    )


def select_images(record: Record, images: Tensor) -> Record:
    """Keep the images with the given indices.

    Args:
        record: tensors (B, ...).
        images: (B',) int64 indices into B.
    """
    return map_record(lambda tensor: tensor.index_select(0, images), record)


def select_hypotheses(record: Record, parents: Tensor) -> Record:
    """Reorder the hypotheses within each image.

    Args:
        record: tensors (B, K, ...).
        parents: (B, K') int64; the new hypothesis k of image b continues the old hypothesis `parents[b, k]`.
    """

    def gather(tensor: Tensor) -> Tensor:
        index = parents.view(*parents.shape, *[1] * (tensor.dim() - 2))
        return tensor.gather(1, index.expand(*parents.shape, *tensor.shape[2:]))

    return map_record(gather, record)
