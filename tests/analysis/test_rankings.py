"""Rankings, the orders in which regions are hidden."""

from __future__ import annotations

import pytest
import torch
from helpers import planted
from helpers.planted import REGIONS, STRENGTH, told
from helpers.tiny_captioner import captioner, photo

from caption.analysis.faithfulness.ablation import Hiding, Removed, Replaced
from caption.analysis.faithfulness.rankings import (
    AtRandom,
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


def trial(turns: tuple[int, ...] = (0,), word: str = "two", hide: Hiding | None = None) -> Trial:
    model, hide = planted.captioner(MAP), hide or Removed()
    (batch,) = sentences(model, [planted.photo(turn) for turn in turns], [told(word)] * len(turns))
    replay = Replay(model.decoder)
    moment = next(replay.moments(batch))
    return Trial(replay, moment, hide.prepare(replay, batch), torch.Generator().manual_seed(0))


def test_ranks_put_the_highest_score_first():
    scores = torch.tensor([[0.1, 0.9, 0.5], [3.0, 2.0, 1.0]])
    assert ranks(scores, torch.Generator()).tolist() == [[2, 0, 1], [0, 1, 2]]


def test_equal_scores_are_placed_at_random():
    places = ranks(torch.zeros(3000, 3), torch.Generator().manual_seed(0))
    assert (places.sort(-1).values == torch.arange(3)).all()
    shares = torch.nn.functional.one_hot(places, 3).float().mean(0)
    assert torch.allclose(shares, torch.full((3, 3), 1 / 3), atol=0.04)
    half = ranks(torch.tensor([0.0, 1.0, 0.0]).expand(1000, 3), torch.Generator().manual_seed(0))
    assert (half[:, 1] == 0).all()
    assert 0.4 < (half[:, 0] == 1).float().mean() < 0.6


def test_by_attention_is_alpha():
    assert torch.allclose(by_attention(trial((0, 2))), torch.tensor([MAP, MAP]).unsqueeze(1)[[0, 1]].where(
        torch.tensor([True, False])[:, None, None], torch.tensor(MAP).roll(2)
    ))  # fmt: skip


def test_gradients_by_hand():
    """log p = s z_2 − log Σ exp, z = Σ α_i a_i: ∂/∂a_i = α_i s (e_2 − p), with p the probabilities of words."""
    asked = trial()
    p = asked.moment.log_probs[0, 4:].exp()
    towards = STRENGTH * (torch.eye(REGIONS)[2] - p)
    weights = torch.tensor(MAP)
    assert torch.allclose(by_gradient(asked)[0, 0], weights * towards.norm(), atol=1e-5)
    # a_i is the i-th unit vector, so the product picks one entry.
    assert torch.allclose(by_gradient_times_input(asked)[0, 0], weights * towards, atol=1e-5)


def test_the_gradient_of_hiding_is_relative_to_the_replacement():
    """g_i = ∂ log p / ∂ α_i = s (e_2 − p)_i. Removed: α_i (g_i − Σ_j α_j g_j). Replaced: α_i (g_i − g · vector)."""
    weights, vector = torch.tensor(MAP), torch.tensor([0.1, 0.0, 0.5, 0.0, 0.2, 0.0, 0.0])
    for hide, turn in ((Removed(), 0), (Replaced(vector), 0), (Removed(), 2)):
        asked = trial((turn,), hide=hide)
        g = STRENGTH * (torch.eye(REGIONS)[2] - asked.moment.log_probs[0, 4:].exp())
        read = weights.roll(turn)
        place = (read * g).sum() if isinstance(hide, Removed) else (g * vector[:REGIONS]).sum()
        scores = by_gradient_of_hiding(asked)
        assert scores.shape == (1, 1, REGIONS)
        assert torch.allclose(scores[0, 0], read * (g - place), atol=1e-4)


@pytest.mark.parametrize("hide", [Removed(), Replaced()])
def test_the_gradient_of_hiding_is_that_of_finite_differences(hide: Hiding):
    model = captioner().double()
    (batch,) = sentences(captioner(), [photo(), photo(seed=1)])
    view = batch.views[0]
    batch = batch._replace(views=(view._replace(vectors=view.vectors.double()),))
    replay = Replay(model.decoder)
    moment = list(replay.moments(batch))[1]
    asked = Trial(replay, moment, hide.prepare(replay, batch), torch.Generator())
    gradient = by_gradient_of_hiding(asked)
    assert gradient.shape == (2, 1, 64)
    step = 1e-2  # log-probabilities are in single precision
    for region in (0, 9, 63):
        shift = torch.zeros(64, dtype=torch.float64)
        shift[region] = step
        up, down = asked.log_probs(torch.stack((1 + shift, 1 - shift)).expand(2, -1, -1)).unbind(1)
        numeric = (up - down) / (2 * step)
        assert gradient[:, 0, region].tolist() == pytest.approx(numeric.tolist(), rel=2e-2, abs=1e-4)


def test_attention_that_subtracts_is_ranked_by_magnitude():
    asked = trial()
    signed = asked._replace(moment=asked.moment._replace(weights=torch.tensor([[0.1, -0.5, 0.2, 0, 0, 0]])))
    assert by_attention(signed)[0, 0, :3].tolist() == pytest.approx([0.1, 0.5, 0.2])


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


def test_random_orders_differ_between_draws_and_words():
    scores = AtRandom(4)(trial((0, 1)))
    assert scores.shape == (2, 4, REGIONS)
    assert len({tuple(row) for row in scores.flatten(0, 1).tolist()}) == 8
