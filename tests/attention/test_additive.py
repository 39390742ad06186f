"""The additive score with the previous word, its options, and its gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from helpers.tiny_views import one_row
from torch import Tensor, nn

from caption.attention import AdditiveScore, GridMemory, Query, QuerySizes, ScoredAttention, Softmax
from caption.decoders import ShowAttendAndTellDecoder
from caption.errors import UserError


def scores(score: AdditiveScore, hidden: Tensor, regions: Tensor) -> Tensor:
    """(B, K, L) of queries (B, K, H) and regions (B, L, D)."""
    (view,) = one_row(regions)
    return score(Query(hidden), GridMemory(score.keys(view), regions, None, view.grid))


def test_the_previous_word_is_a_part_of_the_query():
    """W h + W_y Ey = [W W_y] [h; Ey]."""
    torch.manual_seed(0)
    score, joined = AdditiveScore(5, previous_word=True), AdditiveScore(5)
    score.build(3, QuerySizes(4, 2))
    joined.build(3, QuerySizes(6))
    assert not score.word.weight.any()
    nn.init.normal_(score.word.weight)
    state = {name: weight for name, weight in score.state_dict().items() if name != "word.weight"}
    joined.load_state_dict(state | {"query.weight": torch.cat((score.query.weight, score.word.weight), 1)})
    hidden, word, regions = torch.randn(2, 3, 4), torch.randn(2, 3, 2), torch.randn(2, 6, 3)
    memory = GridMemory.of(*one_row(regions), score.keys(*one_row(regions)))
    expected = scores(joined, torch.cat((hidden, word), -1), regions)
    torch.testing.assert_close(score(Query(hidden, word=word), memory), expected)


@pytest.mark.parametrize("previous_word", [False, True])
def test_a_map_knows_the_word_just_said_only_if_asked_to(previous_word: bool):
    """Two captions differ in their second word alone: the maps of the third differ with `previous_word` only."""
    torch.manual_seed(0)
    attention = ScoredAttention(AdditiveScore(5, previous_word=previous_word), Softmax())
    decoder = ShowAttendAndTellDecoder(attention, embedding_size=4, hidden_size=6)
    decoder.build((3,), vocabulary_size=9, padding=0, start=1)
    if previous_word:
        nn.init.normal_(attention.score.word.weight, std=3)
    memory = decoder.project(one_row(torch.randn(1, 6, 3)))
    captions = torch.tensor([[[1, 4, 5, 6], [1, 4, 7, 6]]])
    unrolled = decoder(memory, captions, torch.tensor([[4, 4]]))
    first, second = unrolled.unpack(unrolled.trace.weights)[0]
    moved = (first - second).abs().sum(-1) > 1e-6
    assert moved.tolist() == [False, False, previous_word, True]


def test_the_previous_word_must_be_handed_on():
    with pytest.raises(UserError, match="previous_word needs a decoder"):
        AdditiveScore(5, previous_word=True).build(3, QuerySizes(4))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"activation": "gelu"}, "activation must be one of 'tanh', 'relu', not 'gelu'"),
        ({"layers": 0}, "one layer .* not 0"),
    ],
)
def test_invalid_arguments_are_refused(options: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=said):
        AdditiveScore(2, **options)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
@pytest.mark.parametrize("layers", [1, 2])
def test_the_gradient_is_the_one_of_the_equation(activation: str, layers: int):
    """The activation is applied in place, which must not change the backward pass."""
    torch.manual_seed(0)
    score = AdditiveScore(2, activation, layers)
    score.build(2, QuerySizes(1))
    score.double()
    query = torch.randn(2, 3, 1, dtype=torch.float64, requires_grad=True)
    regions = torch.randn(2, 4, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q, r: scores(score, q, r), (query, regions))
