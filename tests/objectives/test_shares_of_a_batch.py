"""Objectives in two processes: the mean of their shares is the number of the whole batch, and so is the gradient."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from helpers.tiny_views import WithoutEncoder
from helpers.torchrun import torchrun
from helpers.toy import WORDS, problem, toy
from torch import Tensor, distributed

from caption.attention import AdditiveScore, ScoredAttention, Softmax, StructuredAttention
from caption.attention.stochastic import override_draws, stochastic_parts
from caption.core.runtime.distributed import mean, mean_of_each
from caption.core.tensor_tree import select_images
from caption.kernels import accelerate
from caption.objectives import (
    AttentionPenalty,
    Critic,
    CrossEntropy,
    DoublyStochastic,
    Entropy,
    GreedyAttentionBaseline,
    GuidedAttention,
    LeaveOneOut,
    MovingAverage,
    Objective,
    Reinforce,
    WeightedSum,
)
from caption.training.diagnostics import diagnose

LENGTHS = [[3, 1], [2, 2], [0, 0], [1, 0]]
"""Of four images with two captions each. The processes have four captions and one, eight words and one."""


def objectives() -> dict[str, Objective]:
    return {
        "eq. 14": CrossEntropy([DoublyStochastic(), Entropy(0.1)]),
        "means over words": CrossEntropy([DoublyStochastic(per=("caption", "region"))], 0.1, per=("word",)),
        "sums over captions": CrossEntropy([DoublyStochastic(per=("region",)), Entropy(0.1, per=())]),
        "penalty": CrossEntropy([AttentionPenalty(0.5)]),
        "guided": GuidedAttention(words=1),
        "moving average": Reinforce(MovingAverage(0.5), reward_weight=1.0, terms=[DoublyStochastic(0.5)]),
        "authors' sums": Reinforce(per=(), terms=[DoublyStochastic(0.5, per=())]),
        "leave one out": Reinforce(LeaveOneOut(), samples=2, credit="future"),
        "critic": Reinforce(Critic(3)),
        "greedy attention": Reinforce(GreedyAttentionBaseline()),
        "weighted sum": WeightedSum([CrossEntropy(), GuidedAttention(words=1)], [0.5, 2.0]),
    }


def draw(weights: Tensor) -> Tensor:
    """Locations that depend on the caption's weights and the number of its sample, not on other images."""
    scrambled = (weights[..., 0] * 1e5).long() + torch.arange(weights.shape[1])
    return scrambled % weights.shape[-1]


def measured(name: str, images: slice, accelerated: bool = False) -> dict[str, Tensor]:
    """Loss, gradient and logged numbers of the second batch of some of the images; baselines then have a state."""
    objective = objectives()[name]
    soft = isinstance(objective, CrossEntropy | GuidedAttention | WeightedSum)
    attention = (
        StructuredAttention(2, 3) if name == "penalty" else ScoredAttention(AdditiveScore(4), Softmax())
    )
    decoder = toy(attention) if soft else toy()
    if accelerated:
        accelerate(decoder)
    torch.manual_seed(0)
    objective.build(decoder.query_size, (2,), WORDS)
    objective.prepare([[[4]], [[2]], [[3]]])
    objective.double().train()
    parameters = [*decoder.parameters(), *objective.parameters()]
    for _ in range(2):
        part, captions = select_images(problem(LENGTHS), torch.arange(len(LENGTHS))[images])
        if stochastic_parts(decoder):
            with override_draws(decoder, draw):
                loss = objective(WithoutEncoder(decoder), part, captions)
        else:
            loss = objective(WithoutEncoder(decoder), part, captions)
    gradients = torch.autograd.grad(loss.value, parameters, materialize_grads=True)
    gradient = torch.cat([part.flatten() for part in gradients])
    unrolled = loss.unrolled
    real = torch.ones_like(unrolled.positions, dtype=torch.bool)
    maps = unrolled.unpack(unrolled.trace.weights), unrolled.unpack(real)
    logged = mean_of_each({**loss.logged, **diagnose(*maps, decoder.properties)})
    return {"gradient": mean(gradient), "value": mean(loss.value.detach()), **logged}


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Tensor]]:
    file = tmp_path_factory.mktemp("two") / "measured.pt"
    torchrun(Path(__file__), file)
    return torch.load(file, weights_only=True)


@pytest.mark.nightly
@pytest.mark.skipif(not distributed.is_available(), reason="torch was built without distributed")
@pytest.mark.parametrize("name", objectives())
def test_two_processes_with_half_the_batch_each_equal_one_with_the_whole(
    name: str, halves: dict[str, dict[str, Tensor]]
):
    whole = measured(name, slice(None))
    assert halves[name].keys() == whole.keys()
    assert whole["gradient"].abs().max() > 0.01
    for key, value in whole.items():
        torch.testing.assert_close(halves[name][key].to(value.dtype), value, rtol=1e-5, atol=1e-5, msg=key)


@pytest.mark.parametrize("name", objectives())
def test_losses_and_gradients_of_an_accelerated_decoder_are_those_of_the_plain_one(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    plain = measured(name, slice(None))
    monkeypatch.setattr("caption.kernels.unroll.LARGE", 0)
    accelerated = measured(name, slice(None), accelerated=True)
    assert plain["gradient"].abs().max() > 0.01
    for key, value in plain.items():
        torch.testing.assert_close(accelerated[key], value, msg=key)


if __name__ == "__main__":
    import sys

    distributed.init_process_group("gloo")
    mine = slice(0, 2) if distributed.get_rank() == 0 else slice(2, 4)
    numbers = {name: measured(name, mine) for name in objectives()}
    if distributed.get_rank() == 0:
        torch.save(numbers, sys.argv[1])
    distributed.destroy_process_group()
