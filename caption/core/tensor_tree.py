"""Trees of tensors: the state that decoders pass from word to word and that search reorders.

A tree is a tensor, None, a number, or a named tuple, tuple, list or dictionary of trees. Search uses no other property
of a decoder's state, so the two can change independently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

TensorTree = Any  # Tensor | None | int | float | NamedTuple | tuple | list | dict of trees: a recursive type


class State(NamedTuple):
    """A decoder's state between two words, in three groups that search reorders differently."""

    shared: TensorTree
    """One entry per image, tensors (B, ...): the decoder's memory. Never copied per hypothesis."""
    carried: TensorTree
    """One entry per hypothesis, tensors (B, K, ...): LSTM state, attention state."""
    trace: TensorTree
    """One entry per hypothesis, tensors (B, K, ...): records of the word just scored (α, β). Search keeps them for
    every word and returns them with the caption."""


def map_tensors(function: Callable[[Tensor], Tensor], tree: TensorTree) -> TensorTree:
    """The same tree with `function` applied to each of its tensors.

    A tensor that occurs several times is mapped once, so that it stays shared. Numbers are kept.

    Raises:
        TypeError: the tree contains another type.
    """
    mapped: dict[int, Tensor] = {}

    def map_once(tensor: Tensor) -> Tensor:
        if id(tensor) not in mapped:
            mapped[id(tensor)] = function(tensor)
        return mapped[id(tensor)]

    return _map(map_once, tree)


def _map(function: Callable[[Tensor], Tensor], tree: TensorTree) -> TensorTree:
    if isinstance(tree, Tensor):
        return function(tree)
    if tree is None or isinstance(tree, (int, float)):
        return tree
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_map(function, child) for child in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(_map(function, child) for child in tree)
    if isinstance(tree, dict):
        return {name: _map(function, child) for name, child in tree.items()}
    raise TypeError(
        "a tensor tree consists of tensors, numbers, None, named tuples, tuples, lists and dictionaries, not "
        f"{type(tree).__name__}"
    )


def leaves(tree: TensorTree) -> list[Tensor]:
    """The tensors of a tree in order; a tensor that occurs several times is listed several times."""
    tensors: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    _map(collect, tree)
    return tensors


def combine(function: Callable[[list[Tensor]], Tensor], trees: Sequence[TensorTree]) -> TensorTree:
    """Combine trees of the same structure into one: `function` maps the list of tensors at each position to one
    tensor."""
    return with_leaves(trees[0], [function(list(column)) for column in zip(*map(leaves, trees), strict=True)])


def with_leaves(tree: TensorTree, tensors: Sequence[Tensor]) -> TensorTree:
    """The tree with its tensors replaced by these, in the order of `leaves`."""
    replacements = iter(tensors)
    return _map(lambda _: next(replacements), tree)


def indices(numbers: Sequence[int], device: torch.device) -> Tensor:
    """(N,) int64 on a device, for which the host does not wait."""
    return torch.tensor(list(numbers), dtype=torch.long).to(device, non_blocking=True)


def select_images(tree: TensorTree, images: Tensor) -> TensorTree:
    """Select images by their indices.

    Args:
        tree: tensors (B, ...).
        images: (B',) int64 indices into B.
    """
    return map_tensors(lambda tensor: tensor.index_select(0, images), tree)


def select_hypotheses(tree: TensorTree, parents: Tensor) -> TensorTree:
    """Reorder hypotheses within each image.

    Args:
        tree: tensors (B, K, ...).
        parents: (B, K') int64; the new hypothesis k of image b continues the old hypothesis `parents[b, k]`.
    """

    def gather(tensor: Tensor) -> Tensor:
        index = parents.view(*parents.shape, *[1] * (tensor.dim() - 2))
        return tensor.gather(1, index.expand(*parents.shape, *tensor.shape[2:]))

    return map_tensors(gather, tree)
