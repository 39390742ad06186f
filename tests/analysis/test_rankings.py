"""Rankings, the orders in which regions are hidden."""

from __future__ import annotations

import pytest
import torch
from helpers import planted
from helpers.planted import REGIONS, STRENGTH, caption_of

from caption.analysis.faithfulness.ablation import Ablation, Removed, Replaced
from caption.analysis.faithfulness.rankings import (
    Trial,
    by_attention,
    by_gradient,
    by_gradient_of_hiding,
    by_gradient_times_input,
    by_occlusion,
    ranks,
)
from caption.analysis.replay import Replay, sentences

MAP = [0.4, 0.1, 0.2, 0.05, 0.15, 0.1]


def trial(turns: tuple[int, ...] = (0,), word: str = "two", ablation: Ablation | None = None) -> Trial:
    model, ablation = planted.captioner(MAP), ablation or Removed()
    (batch,) = sentences(model, [planted.photo(turn) for turn in turns], [caption_of(word)] * len(turns))
    replay = Replay(model.decoder)
    step = next(replay.steps(batch))
    return Trial(replay, step, ablation.prepare(replay, batch), torch.Generator().manual_seed(0))


def test_ranks_put_the_highest_score_first():
    scores = torch.tensor([[0.1, 0.9, 0.5], [3.0, 2.0, 1.0]])
    assert ranks(scores, torch.Generator()).tolist() == [[2, 0, 1], [0, 1, 2]]


def test_equal_scores_are_placed_at_random():
    places = ranks(torch.zeros(3000, 3), torch.Generator().manual_seed(0))
    assert (places.sort(-1).values == torch.arange(3)).all()
    shares = torch.nn.functional.one_hot(places, 3).float().mean(0)
    assert torch.allclose(shares, torch.full((3, 3), 1 / 3), atol=0.04)


def test_by_attention_is_alpha():
    asked = trial((0, 2))
    assert torch.allclose(by_attention(asked)[:, 0], torch.tensor([MAP, MAP[-2:] + MAP[:-2]]))
    signed = asked._replace(step=asked.step._replace(weights=torch.tensor([[0.1, -0.5, 0.2, 0, 0, 0]])))
    assert by_attention(signed)[0, 0, :3].tolist() == pytest.approx([0.1, 0.5, 0.2])


def test_gradients_by_hand():
    """log p = s z_2 − log Σ exp, z = Σ α_i a_i: ∂/∂a_i = α_i s (e_2 − p), with p the probabilities of words."""
    asked = trial()
    p = asked.step.log_probs[0, 4:].exp()
    towards = STRENGTH * (torch.eye(REGIONS)[2] - p)
    weights = torch.tensor(MAP)
    assert torch.allclose(by_gradient(asked)[0, 0], weights * towards.norm(), atol=1e-5)
    # a_i is the i-th unit vector, so the product picks one entry.
    assert torch.allclose(by_gradient_times_input(asked)[0, 0], weights * towards, atol=1e-5)


def test_the_gradient_of_hiding_is_relative_to_the_replacement():
    """g_i = ∂ log p / ∂ α_i = s (e_2 − p)_i. Removed: α_i (g_i − Σ_j α_j g_j). Replaced: α_i (g_i − g · vector)."""
    weights, vector = torch.tensor(MAP), torch.tensor([0.1, 0.0, 0.5, 0.0, 0.2, 0.0, 0.0])
    for ablation, turn in ((Removed(), 0), (Replaced(vector), 0), (Removed(), 2)):
        asked = trial((turn,), ablation=ablation)
        g = STRENGTH * (torch.eye(REGIONS)[2] - asked.step.log_probs[0, 4:].exp())
        read = weights.roll(turn)
        place = (read * g).sum() if isinstance(ablation, Removed) else (g * vector[:REGIONS]).sum()
        scores = by_gradient_of_hiding(asked)
        assert scores.shape == (1, 1, REGIONS)
        assert torch.allclose(scores[0, 0], read * (g - place), atol=1e-4)


def test_occlusion_is_the_fall_when_a_region_is_hidden_alone():
    asked = trial((0, 1))
    falls = by_occlusion(asked)
    assert falls.shape == (2, 1, REGIONS)
    for image, turn in enumerate((0, 1)):
        read = torch.tensor(MAP).roll(turn)
        whole = planted.log_p(2, read.tolist())
        for region in range(REGIONS):
            rest = read.clone()
            rest[region] = 0
            expected = whole - planted.log_p(2, (rest / rest.sum()).tolist())
            assert abs(float(falls[image, 0, region]) - expected) < 1e-5
