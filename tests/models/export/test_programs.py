"""A captioner traced by torch.export gives the numbers of the captioner, for any number of images and hypotheses."""

from __future__ import annotations

import pytest
import torch
from helpers import tiny_captioner
from torch import Tensor

from caption.attention import AdditiveScore, GridMemory, Multinoulli, Query, ScoredAttention, Softmax
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.tensor_tree import TensorTree, leaves, select_hypotheses
from caption.decoders import ShowAttendAndTellDecoder
from caption.models.export.programs import programs


def with_score(score: AdditiveScore) -> Captioner:
    decoder = ShowAttendAndTellDecoder(ScoredAttention(score, Softmax()), embedding_size=6, hidden_size=7)
    return tiny_captioner.captioner(decoder=decoder)


class PastWords(AdditiveScore):
    """Keeps the vectors of all words so far, one tensor more with every word."""

    def start(self, memory: GridMemory, hypotheses: int) -> tuple[Tensor, ...]:
        return ()

    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        self.past = (*state, query.word)
        return super().forward(query, memory)

    def carry(self, weights: Tensor, state: TensorTree) -> TensorTree:
        return self.past


class Branching(AdditiveScore):
    def forward(self, query: Query, memory: GridMemory, state: TensorTree = None) -> Tensor:
        scores = super().forward(query, memory)
        return scores if bool((scores > 0).any()) else -scores


@pytest.mark.nightly
@torch.no_grad()
def test_the_programs_give_the_captioners_numbers() -> None:
    captioner = tiny_captioner.captioner(alignment=Multinoulli(at_test="argmax"))
    captioner.decoder.attention.score.region.bias[0] += 60  # keys are beyond those that have exponentials
    traced = programs(captioner)
    assert traced.grid == (8, 8)
    assert len(traced.shared) == 2  # the keys, and the regions, which are also the values: they travel once
    assert traced.outputs == ["log_probs", "weights", "gate"]
    encode, step = traced.encoder.module(), traced.step.module()
    for images, hypotheses in ((1, 1), (3, 2), (2, 5)):
        pixels = torch.randint(0, 256, (images, 3, 32, 32), dtype=torch.uint8)
        tensors = list(encode(pixels))
        shared, carried = tensors[: len(traced.shared)], tensors[len(traced.shared) :]
        assert len(carried) == len(traced.carried)
        parents = torch.zeros(images, hypotheses, dtype=torch.long)
        carried = [select_hypotheses(tensor, parents) for tensor in carried]
        state = captioner.decoder.start(captioner.project(captioner.encoder(pixels)), hypotheses)
        words = torch.ones(images, hypotheses, dtype=torch.long)
        for _ in range(3):
            log_probs, weights, gate, *carried = step(words, [*shared, *carried])
            expected, state = captioner.decoder.step(state, words)
            torch.testing.assert_close(log_probs, expected)
            torch.testing.assert_close(weights, state.trace.weights)
            torch.testing.assert_close(gate, state.trace.gate)
            torch.testing.assert_close(carried, leaves(state.carried))
            words = log_probs.argmax(-1)


def test_what_cannot_be_traced_is_named() -> None:
    with pytest.raises(UserError, match="at_test"):
        programs(tiny_captioner.captioner(alignment=Multinoulli(at_test="sample")))
    with pytest.raises(UserError, match=r"Decoder gets another tensor with every word.*keep one tensor"):
        programs(with_score(PastWords(8)))
    with pytest.raises(UserError, match=r"torch.export.*data-dependent"):
        programs(with_score(Branching(8)))
