"""A captioner under edits: its visible regions, hard attention with edited weights, and its random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from helpers.tiny_captioner import captioner, photo
from torch import Tensor

from caption.analysis.interventions.edited_attention import combine_edits, edited_attention, mask_views
from caption.attention import Alignment, Multinoulli
from caption.attention.map_hooks import Edit
from caption.captioner import Captioner
from caption.search import Greedy
from caption.text.vocabulary import START

REGIONS, GRID = 64, (8, 8)


def onto(*regions: int) -> Tensor:
    weights = torch.zeros(REGIONS)
    weights[list(regions)] = 1 / len(regions)
    return weights


def model(alignment: Alignment | None = None) -> Captioner:
    return captioner(search=Greedy(max_length=6), alignment=alignment)


def at(step: int, weights: Tensor) -> Edit:
    return lambda given, now, grid: weights.expand_as(given) if now == step else given


def steps(
    made: Captioner, edits: Sequence[Edit] = (), left: Tensor | None = None, seed: int = 0, count: int = 3
) -> list[Any]:
    """Traces of some steps that all emit word 4."""
    seen = {} if left is None else {GRID: left}
    views = mask_views(made.encode([photo(), photo(seed=1)]), seen)
    traces, fed = [], START
    with torch.no_grad(), edited_attention(made.decoder, combine_edits(edits, seen), [GRID], seed):
        state = made.decoder.start(made.project(views), 2)
        for _ in range(count):
            _, state = made.decoder.step(state, torch.full((2, 2), fed))
            traces.append(state.trace)
            fed = 4
    return traces


def test_a_mask_that_is_there_already_stays():
    visible, real = torch.arange(REGIONS) > 3, torch.arange(REGIONS) < 60
    (view,) = model().encode([photo()])
    (left,) = mask_views((view._replace(mask=real[None]),), {GRID: visible})
    assert torch.equal(left.mask[0], visible & real)


def test_forced_attention_apply_in_order_to_visible_regions():
    given = []

    def second(weights: Tensor, step: int, grid: object) -> Tensor:
        given.append(weights[0, 0])
        return weights.flip(-1)

    visible = torch.ones(REGIONS, dtype=torch.bool)
    visible[60] = False
    traces = steps(model(), [at(1, onto(1, 3)), second], visible)
    assert torch.equal(given[1], onto(1, 3))
    assert torch.equal(traces[1].weights, onto(62).expand(2, 2, -1))  # 60 is removed, so 62 has all weight
    assert traces[0].weights[..., 60].eq(0).all()
    assert traces[0].weights.sum(-1) == pytest.approx(torch.ones(2, 2))


def test_unedited_steps_use_the_same_random_numbers():
    plain = model(Multinoulli(at_test="sample"))
    traces = (
        steps(plain, edits, seed=seed, count=4) for edits, seed in (([], 5), ([at(1, onto(9))], 5), ([], 6))
    )
    one, edited, other = ([trace.location for trace in of_one] for of_one in traces)
    assert torch.equal(one[0], edited[0])
    assert (edited[1] == 9).all()
    assert not torch.equal(one[1], edited[1])
    assert not torch.equal(torch.stack(one), torch.stack(other))
    assert len({tuple(location.flatten().tolist()) for location in one}) > 1  # each step has its own


def test_the_edited_step_does_not_change_later_random_numbers():
    """If it is forced to read the region that it would have sampled, the rest of the caption is unchanged."""
    plain = model(Multinoulli(at_test="sample"))
    free = steps(plain, seed=5, count=4)
    again = steps(plain, [lambda weights, step, grid: weights.clone()], seed=5, count=4)
    assert [torch.equal(a.location, b.location) for a, b in zip(free, again, strict=True)] == [True] * 4
