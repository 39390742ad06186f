"""Records of tensors are mapped over, and reordered by image and by hypothesis."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caption.tensor_tree import State, map_tensors, select_hypotheses, select_images


class Pair(NamedTuple):
    left: Any
    right: Any


def test_mapping_keeps_the_structure():
    record = Pair(torch.tensor(1), [None, (torch.tensor(2), State(torch.tensor(3), None, ()))])
    doubled = map_tensors(lambda tensor: 2 * tensor, record)
    assert isinstance(doubled, Pair)
    assert doubled == Pair(torch.tensor(2), [None, (torch.tensor(4), State(torch.tensor(6), None, ()))])
    assert isinstance(doubled.right, list)
    assert isinstance(doubled.right[1], tuple)
    assert isinstance(doubled.right[1][1], State)
    assert map_tensors(lambda tensor: tensor, None) is None


@pytest.mark.parametrize("stranger", [{"a": torch.zeros(1)}, 3, "words"])
def test_what_is_no_record_is_refused(stranger: object):
    with pytest.raises(TypeError, match=type(stranger).__name__):
        map_tensors(lambda tensor: tensor, (torch.zeros(1), stranger))


def test_images_are_selected_by_index():
    record = Pair(torch.tensor([[1], [2], [3]]), None)
    assert select_images(record, torch.tensor([2, 0])).left.tolist() == [[3], [1]]
    assert select_images(record, torch.tensor([], dtype=torch.long)).left.shape == (0, 1)


def test_each_hypothesis_continues_its_parent():
    names = torch.tensor([[10, 11], [20, 21]])
    parents = torch.tensor([[1, 1, 0], [0, 1, 1]])
    assert select_hypotheses(names, parents).tolist() == [[11, 11, 10], [20, 21, 21]]
    assert select_hypotheses(names > 15, parents).dtype == torch.bool


@settings(max_examples=40, deadline=None)
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
