"""Trees of tensors: mapped, combined, and reordered by image and by hypothesis."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from caption.core.tensor_tree import State, combine, leaves, map_tensors, select_hypotheses, select_images


class Pair(NamedTuple):
    left: Any
    right: Any


def test_mapping_keeps_the_structure():
    one = torch.tensor(1)
    tree = Pair(one, [None, 3, (torch.tensor(2), State(torch.tensor(3), None, ()))])
    doubled = map_tensors(lambda tensor: 2 * tensor, tree)
    assert doubled == Pair(torch.tensor(2), [None, 3, (torch.tensor(4), State(torch.tensor(6), None, ()))])
    kinds = [type(part) for part in (doubled, doubled.right, doubled.right[2], doubled.right[2][1])]
    assert kinds == [Pair, list, tuple, State]
    assert leaves({"b": tree, "a": (one,)}) == [one, torch.tensor(2), torch.tensor(3), one]
    assert leaves(None) == leaves((1.5, [], {})) == []
    assert map_tensors(lambda tensor: tensor, None) is None


def test_a_tensor_at_two_places_is_mapped_once_and_stays_one():
    shared, calls = torch.tensor([1.0]), []
    tree = {"values": shared, "regions": Pair(shared, torch.tensor([1.0]))}
    mapped = map_tensors(lambda tensor: calls.append(tensor) or 2 * tensor, tree)
    assert len(calls) == 2  # an equal tensor is another one
    assert mapped["values"] is mapped["regions"].left
    assert mapped["values"].item() == mapped["regions"].right.item() == 2


@pytest.mark.parametrize("stranger", [{1, 2}, "words", torch.float32])
@pytest.mark.parametrize(
    "function",
    [lambda tree: map_tensors(lambda tensor: tensor, tree), leaves, lambda tree: combine(sum, [tree])],
)
def test_anything_else_is_refused(function: Any, stranger: object):
    with pytest.raises(TypeError, match=type(stranger).__name__):
        function((torch.zeros(1), {"inside": stranger}))


def test_trees_are_combined_place_by_place_and_images_selected_by_index():
    first = Pair(torch.tensor([1, 2]), {"weights": torch.tensor([[1.0]]), "grid": (7, 7), "none": None})
    second = Pair(torch.tensor([3]), {"weights": torch.tensor([[2.0]]), "grid": (7, 7), "none": None})
    joined = combine(torch.cat, [first, second])
    assert isinstance(joined, Pair)
    assert joined.left.tolist() == [1, 2, 3]
    assert joined.right["weights"].tolist() == [[1.0], [2.0]]
    assert (joined.right["grid"], joined.right["none"]) == ((7, 7), None)
    assert select_images(joined.left, torch.tensor([2, 0])).tolist() == [3, 1]


@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 5),
    st.lists(st.integers(1, 3), max_size=3),
    st.data(),
)
def test_reordering_is_the_same_for_any_shape_behind(
    images: int, before: int, after: int, behind: list[int], data: st.DataObject
):
    tensor = torch.randn(images, before, *behind)
    chosen = st.lists(st.integers(0, before - 1), min_size=after, max_size=after)
    parents = torch.tensor(data.draw(st.lists(chosen, min_size=images, max_size=images)))
    moved: Tensor = select_hypotheses((tensor,), parents)[0]
    assert moved.shape == (images, after, *behind)
    for b in range(images):
        for k in range(after):
            assert torch.equal(moved[b, k], tensor[b, parents[b, k]])
