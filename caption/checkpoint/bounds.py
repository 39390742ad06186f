"""Bounds on what a checkpoint may hold and describe, so that loading it takes no more than the file's size suggests."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from caption.errors import CheckpointError

ENTRIES = 3_000_000
"""Many times the words of the largest vocabulary."""
DEPTH = 100
LARGEST = 2**63
"""Of any whole number: a seed."""
LARGEST_ARGUMENT = 20_000
"""Of a part's arguments: far above any size, and low enough for a list of that many layers."""
RANDOM = {"aten::normal_", "aten::uniform_"}
IN_PLACE = RANDOM | {f"aten::{name}_" for name in ("fill", "zero", "relu", "hardtanh")}


def check_plain(value: Any, largest: int = LARGEST) -> None:
    """Check that a value consists of dicts with text as keys, lists, text, numbers, booleans and None.

    Checked before anything walks through it: a few bytes of a pickle can describe lists that are nested thousands of
    times, or that contain each other and have more entries than any memory.

    Args:
        value: the description, or a part of it.
        largest: whole numbers are smaller.

    Raises:
        CheckpointError: it holds something else, text that is not Unicode, or is too large or too deeply nested.
    """
    stack = [(value, 0)]
    visited = 0
    while stack:
        entry, depth = stack.pop()
        visited += 1
        children: list[Any] = []
        if isinstance(entry, dict):
            if not all(isinstance(key, str) for key in entry):
                raise CheckpointError("its description has keys that are not text")
            children = [*entry, *entry.values()]
        elif isinstance(entry, (list, tuple)):
            children = [*entry]
        else:
            _check_value(entry, largest)
        if depth > DEPTH or visited + len(stack) + len(children) > ENTRIES:
            raise CheckpointError("its description is larger or more deeply nested than any model's")
        stack += [(child, depth + 1) for child in children]


def _check_value(value: Any, largest: int) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise CheckpointError(f"its description has text that is not Unicode, {value[:50]!a}") from None
    elif isinstance(value, int):
        if abs(value) >= largest:
            raise CheckpointError(f"its description has a whole number of {largest} or more")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise CheckpointError(f"its description has the number {value}")
    elif value is not None:
        raise CheckpointError(f"its description holds a {type(value).__name__}, not a plain value")


def check_tensors(state: Any) -> None:
    """Raise a CheckpointError if a state dict is not one of tensors."""
    if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
        raise CheckpointError("its state_dict is not a dictionary of tensors")
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise CheckpointError(f"{name[:100]!r} is not a tensor")


class Uninitialised(TorchDispatchMode):
    """Weights are 0 instead of random: they are about to be read, and drawing them takes longer than that."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # as for Budget

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.name in RANDOM:
            return args[0].zero_()
        if func._schema.name == "aten::linalg_qr":  # of orthogonal initial weights
            return args[0], args[0][: args[0].shape[1]]
        return func(*args, **(kwargs or {}))


class Budget(TorchDispatchMode):
    """Refuses the construction of a model that is much larger than its weights in the file."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True imports torch's compiler, which takes longer than torch

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        # Initialisation takes up to ten operations and copies of each weight; what is not stored is small.
        self.operations = 10_000 + 100 * len(weights)
        self.elements = 50_000_000 + 20 * sum(tensor.numel() for tensor in weights.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations -= 1
        # Without memory there are no values to change, and the operation would only take time.
        result = args[0] if func._schema.name in IN_PLACE else func(*args, **(kwargs or {}))
        self.elements -= sum(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        if self.operations < 0 or self.elements < 0:
            raise CheckpointError("it describes a model that is larger than its weights")
        return result
