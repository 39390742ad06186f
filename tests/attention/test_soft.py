"""Softmax weights and the expected context, by hand and under masks (eqs. 4 to 6)."""

from __future__ import annotations

import torch
from helpers.given_scores import GivenScores, attend
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from caption.attention import AttentionOutput, Multinoulli, QuerySizes, ScoredAttention, Softmax
from caption.tensor_tree import leaves


def soft(scores: Tensor, regions: Tensor, mask: Tensor | None = None) -> AttentionOutput:
    attention = ScoredAttention(GivenScores(), Softmax())
    attention.build(regions.shape[-1:], QuerySizes(scores.shape[-1]))
    return attend(attention, scores, regions, mask)


def test_by_hand():
    scores = torch.tensor([[[1.0, 3.0, 4.0], [5.0, 5.0, 5.0]]]).log()
    regions = torch.tensor([[[8.0, 0.0], [0.0, 8.0], [8.0, 8.0]]])
    output = soft(scores, regions)
    torch.testing.assert_close(output.weights, torch.tensor([[[1 / 8, 3 / 8, 4 / 8], [1 / 3, 1 / 3, 1 / 3]]]))
    torch.testing.assert_close(output.context, torch.tensor([[[5.0, 7.0], [16 / 3, 16 / 3]]]))
    assert not leaves(output.state)
    assert output.location is None
    assert output.log_prob is None


@settings(max_examples=50, deadline=None)
@given(
    scores=st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=8),
    masked=st.sets(st.integers(0, 7), max_size=6),
    alignment=st.sampled_from([Softmax(), Multinoulli(expectation=1.0)]),
)
def test_rows_sum_to_one_for_any_scores(
    scores: list[float], masked: set[int], alignment: Softmax | Multinoulli
):
    mask = torch.tensor([[i not in masked for i in range(len(scores))]])
    mask[0, 0] = True
    attention = ScoredAttention(GivenScores(), alignment)
    output = attend(attention, torch.tensor([[scores]]), torch.ones(1, len(scores), 2), mask)
    torch.testing.assert_close(output.weights.sum(-1), torch.ones(1, 1))
    assert (output.weights >= 0).all()
    assert (output.weights[0, 0, ~mask[0]] == 0).all()
    torch.testing.assert_close(output.context, torch.ones(1, 1, 2))
