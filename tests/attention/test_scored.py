"""Scores combined with alignments, each with its own state."""

from __future__ import annotations

import torch
from helpers.given_scores import GivenScores
from helpers.tiny_views import one_row
from torch import Tensor

from caption.attention import (
    Alignment,
    AlignmentOutput,
    GridMemory,
    Multinoulli,
    Query,
    QuerySizes,
    ScoredAttention,
    Softmax,
)
from caption.attention.map_hooks import edit_maps
from caption.tensor_tree import TensorTree

VECTORS = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]]])
SCORES = torch.tensor([[[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]])


class Coverage(GivenScores):
    """e_i minus ten times the previous weights of region i."""

    def start(self, memory: GridMemory, hypotheses: int) -> Tensor:
        images, regions = memory.values.shape[:2]
        return memory.values.new_zeros(images, hypotheses, regions)

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        return query.hidden - 10 * state

    def carry(self, weights: Tensor, state: TensorTree) -> Tensor:
        return state + weights


class Sharpening(Softmax):
    """α[t] = softmax((t + 1) · e); the step t is its state."""

    def start(self, memory: GridMemory, hypotheses: int) -> Tensor:
        return memory.values.new_zeros(len(memory.values), hypotheses, 1)

    def forward(
        self, scores: Tensor, query: Query, memory: GridMemory, state: TensorTree = None
    ) -> AlignmentOutput:
        return AlignmentOutput((scores * (state + 1)).softmax(-1), state=state + 1)


def covering(alignment: Alignment | None = None) -> ScoredAttention:
    attention = ScoredAttention(Coverage(), alignment or Softmax())
    attention.build((2,), QuerySizes(3))
    return attention


def test_the_states_of_score_and_alignment_do_not_mix():
    attention = covering(Sharpening())
    memory = attention.project(one_row(VECTORS))
    first = attention(Query(SCORES), memory, attention.start(memory, 2))
    second = attention(Query(SCORES), memory, first.state)
    torch.testing.assert_close(first.weights, SCORES.softmax(-1))
    torch.testing.assert_close(second.weights, (2 * (SCORES - 10 * first.weights)).softmax(-1))
    assert second.state.alignment.flatten().tolist() == [2, 2]


def test_the_state_follows_the_maps_that_were_read():
    attention = covering()
    memory = attention.project(one_row(VECTORS))
    onto = torch.tensor([0.0, 0.0, 1.0])

    class Owner:
        compiled = False
        attentions = {"attention": attention}

    with edit_maps(Owner(), lambda weights, step, grid: onto, [(1, 3)]):
        state = attention(Query(SCORES), memory, attention.start(memory, 2)).state
    assert torch.equal(state.score, onto.expand(1, 2, -1))


# -- weighing and reading ------------------------------------------------------------------------------------------


def test_maps_of_the_callers_are_read_as_they_are_and_nothing_is_sampled():
    attention = covering(Multinoulli(expectation=0.0)).train()
    memory = attention.project(one_row(VECTORS))
    maps = torch.tensor([[[0.5, 0.5, 0.0], [0.0, 0.0, 2.0]]])
    before = torch.get_rng_state()
    reading = attention.read(maps, Query(SCORES), memory)
    assert torch.equal(torch.get_rng_state(), before)
    assert reading.context.tolist() == [[[0.5, 0.5], [10.0, 10.0]]]
    assert reading.location is None
    assert reading.log_prob is None
