"""The description in a checkpoint consists of plain values of bounded size and depth.

Checked before anything walks through it: a few bytes of a pickle can describe lists that are nested thousands of times,
or that contain each other and have more entries than any memory.
"""

from __future__ import annotations

from typing import Any

from caption.errors import CheckpointError

ENTRIES = 3_000_000
"""Many times the words of the largest vocabulary."""
DEPTH = 100
LARGEST = 2**63
"""Of any whole number: a seed."""
LARGEST_ARGUMENT = 20_000
"""Of a part's arguments: far above any size, and low enough for a list of that many layers."""


def check_plain(value: Any, largest: int = LARGEST) -> None:
    """Check that a value consists of dicts with text as keys, lists, text, numbers, booleans and None.

    Args:
        value: the description, or a part of it.
        largest: whole numbers are smaller.

    Raises:
        CheckpointError: it holds something else, text that is not Unicode, or is too large or too deeply nested.
    """
    waiting = [(value, 0)]
    seen = 0
    while waiting:
        each, depth = waiting.pop()
        seen += 1
        if isinstance(each, dict):
            inner = [*each, *each.values()]
            if not all(isinstance(key, str) for key in each):
                raise CheckpointError("its description has keys that are not text")
        elif isinstance(each, (list, tuple)):
            inner = [*each]
        else:
            inner = []
            _check_value(each, largest)
        if depth > DEPTH or seen + len(waiting) + len(inner) > ENTRIES:
            raise CheckpointError("its description is larger or more deeply nested than any model's")
        waiting += [(entry, depth + 1) for entry in inner]


def _check_value(value: Any, largest: int) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise CheckpointError(f"its description has text that is not Unicode, {value[:50]!a}") from None
    elif isinstance(value, int):
        if abs(value) >= largest:
            raise CheckpointError(f"its description has a whole number of {largest} or more")
    elif value is not None and not isinstance(value, float):
        raise CheckpointError(f"its description holds a {type(value).__name__}, not a plain value")
