"""Hiding regions, deletion and insertion, on a model with known dependences of words on regions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from helpers import planted, tiny_captioner
from helpers.planted import REGIONS, STRENGTH, VOCABULARY, caption_of, log_p, photo
from matplotlib.figure import Figure

from caption.analysis.ablation import Ablation, Removed, Replaced, mean_regions
from caption.analysis.faithfulness.curves import FaithfulnessCurves, faithfulness_curves
from caption.analysis.maps.attention import magnitude
from caption.analysis.maps.gradients import gradient, gradient_of_hiding, gradient_times_input
from caption.analysis.maps.perturbation import AtRandom
from caption.analysis.maps.trial import Trial, ranks
from caption.analysis.replay import Replay, sentences

NOTHING = torch.zeros(REGIONS + 1)
ALL = range(1, REGIONS)
ON_TWO = [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]
DECOY = [0.9, 0.0, 0.1, 0.0, 0.0, 0.0]
"""Attends to region 0, and emits word two because of its small weight on region 2."""


def test_vectors_of_another_length_or_number_are_refused():
    model = tiny_captioner.captioner()
    (batch,), replay = sentences(model, tiny_captioner.photo()), Replay(model.decoder)
    with pytest.raises(ValueError, match=r"replaced by \(6,\) numbers, not \(5,\)"):
        Replaced(torch.zeros(5)).prepare(replay, batch)
    with pytest.raises(ValueError, match=r"1 view.*2"):
        Replaced([torch.zeros(6), torch.zeros(6)]).prepare(replay, batch)


def test_the_mean_region_is_over_all_regions_of_all_photos():
    model = tiny_captioner.captioner().train()
    photos = [tiny_captioner.photo(seed=seed) for seed in range(3)]
    (mean,) = mean_regions(model, photos, batch_size=2)
    assert model.training
    assert torch.allclose(mean, model.eval().encode(photos)[0].vectors.mean((0, 1)), atol=1e-6)


def test_a_word_read_from_where_it_looks_falls_at_once_and_rises_at_once():
    curves = faithfulness_curves(
        planted.captioner(ON_TWO), photo(), [caption_of("two")], ablation=Replaced(NOTHING), counts=ALL
    )
    high, low = log_p(2, ON_TWO), math.log(1 / VOCABULARY)
    assert curves.counts == tuple(range(REGIONS + 1))
    for order in ("attention", "gradient x input", "occlusion"):
        deletion = curves.log_probs["deletion", order]
        assert deletion.shape == (1, 1, REGIONS + 1)
        assert deletion[0, 0] == pytest.approx([high] + [low] * REGIONS, abs=1e-6)
        assert curves.log_probs["insertion", order][0, 0] == pytest.approx([low] + [high] * REGIONS, abs=1e-6)


def test_in_random_order_it_falls_half_way_on_average():
    random = {"random": AtRandom(draws=2000)}
    curves = faithfulness_curves(
        planted.captioner(ON_TWO), photo(), [caption_of("two")], random, Replaced(NOTHING), ALL
    )
    high, low = math.exp(log_p(2, ON_TWO)), 1 / VOCABULARY
    # Region 2 remains after n of 6 deletions with probability 1 − n/6.
    expected = [low + (high - low) * (1 - n / REGIONS) for n in range(REGIONS + 1)]
    assert curves.curve("deletion", "random")[0] == pytest.approx(expected, abs=0.04)
    assert curves.area("deletion", "random")[0] == pytest.approx((high + low) / 2, abs=0.03)
    assert curves.area("insertion", "random")[0] == pytest.approx((high + low) / 2, abs=0.03)


def test_attention_on_a_decoy_is_found_out():
    """Ablation the most attended region helps the word; hiding the region that it depends on removes it."""
    curves = faithfulness_curves(planted.captioner(DECOY), photo(), [caption_of("two")], counts=ALL)
    before, alone = log_p(2, DECOY), log_p(2, ON_TWO)
    attention = curves.curve("deletion", "attention", logarithm=True)[0]
    assert attention[:3] == pytest.approx([before, alone, math.log(1 / VOCABULARY)], abs=1e-6)
    assert curves.fall("attention", 1)[0] == pytest.approx(before - alone)
    for order in ("gradient x input", "occlusion"):
        assert curves.fall(order, 1)[0] == pytest.approx(before - log_p(2, [1, 0, 0, 0, 0, 0]))
        assert curves.area("deletion", order)[0] < curves.area("deletion", "random")[0]
        assert curves.area("insertion", order)[0] > curves.area("insertion", "attention")[0]
    assert curves.area("deletion", "attention")[0] > curves.area("deletion", "random")[0]


def test_each_word_is_measured_at_its_own_step_and_photo():
    maps = ([0.4, 0.6, 0, 0, 0, 0], [0, 0, 0.7, 0.3, 0, 0])
    captions = [caption_of("one three"), caption_of("two"), caption_of("five four zero")]
    model = planted.captioner(*maps)
    curves = faithfulness_curves(
        model, [photo(), photo(1), photo(2)], captions, {"attention": magnitude}, batch_size=2
    )
    log_probs = curves.curve("deletion", "attention", logarithm=True)[:, 0].tolist()
    said = dict(zip(zip(curves.images.tolist(), curves.words, strict=True), log_probs, strict=True))
    assert said == pytest.approx(
        {
            (0, "one"): log_p(1, maps[0]),
            (0, "three"): log_p(3, maps[1]),
            (1, "two"): log_p(2, np.roll(maps[0], 1)),
            (2, "five"): log_p(5, np.roll(maps[0], 2)),
            (2, "four"): log_p(4, np.roll(maps[1], 2)),
            (2, "zero"): log_p(0, np.roll(maps[1], 2)),
        },
        abs=1e-6,
    )


@pytest.mark.parametrize("count", [-1, REGIONS + 1])
def test_no_more_regions_are_hidden_than_there_are(count):
    with pytest.raises(ValueError, match="0 to 6 can be hidden"):
        faithfulness_curves(planted.captioner(ON_TWO), photo(), [caption_of("two")], counts=[count])


def curves() -> FaithfulnessCurves:
    deletion = np.log([[[0.9, 0.5, 0.2]], [[0.7, 0.3, 0.2]]])  # two words, one draw, three points
    curves = {
        ("deletion", "attention"): deletion,
        ("deletion", "random"): np.concatenate([deletion, deletion - math.log(2)], 1),
        ("insertion", "attention"): deletion[..., ::-1],
        ("insertion", "random"): deletion[..., ::-1],
    }
    return FaithfulnessCurves(("red", "dog"), np.array([0, 1]), (0, 4, 16), curves)


def test_a_line_per_order_at_the_mean_over_words_and_draws():
    ax = Figure().subplots()
    assert curves().draw(ax, "deletion") is ax
    attention, random = ax.get_lines()
    assert attention.get_xdata().tolist() == [0, 4, 16]
    assert attention.get_ydata() == pytest.approx([0.8, 0.4, 0.2])
    assert random.get_ydata() == pytest.approx(np.array([0.8, 0.4, 0.2]) * 0.75)
    assert attention.get_linestyle() != random.get_linestyle()
    assert ax.get_xlabel() == "regions hidden, of 16"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "1", "4", "16"]


def test_both_curves_stand_side_by_side():
    deletion, insertion = curves().plot().axes
    assert (deletion.get_title(), insertion.get_title()) == ("deletion", "insertion")
    assert [text.get_text() for text in insertion.get_legend().get_texts()] == ["attention", "random"]
    with pytest.raises(ValueError, match="no words"):
        curves().only([]).plot()
    with pytest.raises(ValueError, match="no point at 5"):
        curves().fall("random", 5)


# -- orders -------------------------------------------------------------------------------------------------------

MAP = [0.4, 0.1, 0.2, 0.05, 0.15, 0.1]


def trial(turns: tuple[int, ...] = (0,), word: str = "two", ablation: Ablation | None = None) -> Trial:
    model, photos = planted.captioner(MAP), [photo(turn) for turn in turns]
    (batch,), replay = sentences(model, photos, [caption_of(word)] * len(turns)), Replay(model.decoder)
    ablate = (ablation or Removed()).prepare(replay, batch)
    return Trial(replay, next(replay.steps(batch)), ablate, torch.Generator().manual_seed(0))


def test_ranks_put_the_highest_score_first():
    scores = torch.tensor([[0.1, 0.9, 0.5], [3.0, 2.0, 1.0]])
    assert ranks(scores, torch.Generator()).tolist() == [[2, 0, 1], [0, 1, 2]]


def test_equal_scores_are_placed_at_random():
    places = ranks(torch.zeros(3000, 3), torch.Generator().manual_seed(0))
    assert (places.sort(-1).values == torch.arange(3)).all()
    shares = torch.nn.functional.one_hot(places, 3).float().mean(0)
    assert torch.allclose(shares, torch.full((3, 3), 1 / 3), atol=0.04)


def test_the_order_of_attention_is_that_of_alpha():
    asked = trial((0, 2))
    assert torch.allclose(magnitude(asked)[:, 0], torch.tensor([MAP, MAP[-2:] + MAP[:-2]]))
    signed = asked._replace(step=asked.step._replace(weights=torch.tensor([[0.1, -0.5, 0.2, 0, 0, 0]])))
    assert magnitude(signed)[0, 0, :3].tolist() == pytest.approx([0.1, 0.5, 0.2])


def test_gradients_by_hand():
    """log p = s z_2 − log Σ exp, z = Σ α_i a_i: ∂/∂a_i = α_i s (e_2 − p), with p the probabilities of words."""
    asked = trial()
    p = asked.step.log_probs[0, 4:].exp()
    towards = STRENGTH * (torch.eye(REGIONS)[2] - p)
    weights = torch.tensor(MAP)
    assert torch.allclose(gradient(asked)[0, 0], weights * towards.norm(), atol=1e-5)
    # a_i is the i-th unit vector, so the product picks one entry.
    assert torch.allclose(gradient_times_input(asked)[0, 0], weights * towards, atol=1e-5)


def test_the_gradient_of_hiding_is_relative_to_the_replacement():
    """g_i = ∂ log p / ∂ α_i = s (e_2 − p)_i. Removed: α_i (g_i − Σ_j α_j g_j). Replaced: α_i (g_i − g · vector)."""
    weights, vector = torch.tensor(MAP), torch.tensor([0.1, 0.0, 0.5, 0.0, 0.2, 0.0, 0.0])
    for ablation, turn in ((Removed(), 0), (Replaced(vector), 0), (Removed(), 2)):
        asked = trial((turn,), ablation=ablation)
        g = STRENGTH * (torch.eye(REGIONS)[2] - asked.step.log_probs[0, 4:].exp())
        read = weights.roll(turn)
        place = (read * g).sum() if isinstance(ablation, Removed) else (g * vector[:REGIONS]).sum()
        scores = gradient_of_hiding(asked)
        assert scores.shape == (1, 1, REGIONS)
        assert torch.allclose(scores[0, 0], read * (g - place), atol=1e-4)
