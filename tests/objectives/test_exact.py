"""The enumeration of all paths against following each of them step by step."""

from __future__ import annotations

import itertools

import pytest
import torch
from helpers.exact_paths import every_path
from helpers.toy import REGIONS, problem, toy
from torch import Tensor

from caption.attention import Softmax
from caption.attention.scored import AlignmentOutput, Selection


class ReadsOne(Softmax):
    """Weighs the regions as usual, and reads a fixed one."""

    region = 0

    def select(self, weights: Tensor, aligned: AlignmentOutput | None = None) -> Selection:
        read = torch.zeros_like(weights)
        read[..., self.region] = 1
        return Selection(read)


@pytest.mark.parametrize("steps", [1, 3])
def test_all_paths_are_those_of_a_walk_with_single_steps(steps: int):
    decoder = toy()
    memory, captions = problem(decoder, [[steps]])
    paths = every_path(decoder, memory, captions)
    assert len(paths.log_prob) == REGIONS**steps
    by_path = {
        tuple(path): (p.item(), y.item())
        for path, p, y in zip(paths.locations.tolist(), paths.log_prob, paths.log_likelihood, strict=True)
    }
    decoder.attention.alignment = alignment = ReadsOne()
    for path in itertools.product(range(REGIONS), repeat=steps):
        state, log_prob, log_likelihood = decoder.start(memory), 0.0, 0.0
        for t, alignment.region in enumerate(path):
            scores, state = decoder.step(state, captions.words[:, :, t])
            log_prob += state.trace.weights[0, 0, alignment.region].log().item()
            log_likelihood += scores[0, 0, captions.targets[0, 0, t]].item()
        assert by_path.pop(path) == pytest.approx((log_prob, log_likelihood), rel=1e-5)
    assert not by_path
