"""Map methods: closed forms on games whose answer is known, each paper's formula a second time, and what is refused."""

from __future__ import annotations

import math
from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import planted, tiny_captioner
from helpers.captions import caption_of

import caption
from caption.analysis.maps import METHODS, attention, grad_cam, gradients, perturbation
from caption.analysis.maps.method import ERROR
from caption.analysis.maps.trial import Trial, scores_of
from caption.analysis.replay import Replay, sentences
from caption.attention import Multinoulli
from caption.core.errors import UserError
from caption.core.regions import Regions

GRID = (3, 4)
REGIONS = math.prod(GRID)
WEIGHTS = torch.linspace(-1, 2, REGIONS)


def game(log_probs: Any, grid: tuple[int, int] = GRID) -> Any:
    """A trial in which log p is a function of how much of each region is visible, (..., L) -> (...)."""
    everything = torch.ones(1, math.prod(grid))
    step = SimpleNamespace(
        weights=everything, log_prob=log_probs(everything), views=(Regions(everything[..., None], grid),)
    )
    return SimpleNamespace(
        step=step, vectors=everything[..., None], generator=torch.Generator().manual_seed(0),
        log_probs=lambda visible: log_probs(visible.float()),
    )  # fmt: skip


def additive(visible: torch.Tensor) -> torch.Tensor:
    return visible @ WEIGHTS - 3


# -- closed forms -----------------------------------------------------------------------------------------------------


def test_occlusion_and_shapley_values_of_an_additive_game_are_its_weights():
    assert torch.allclose(perturbation.occlusion(game(additive))[0, 0], WEIGHTS, atol=1e-5)
    draws = perturbation.shapley(game(additive))
    assert draws.shape == (1, perturbation.ORDERS, REGIONS)
    assert torch.allclose(draws, WEIGHTS.expand_as(draws), atol=1e-5)


def test_shapley_values_of_a_game_with_interactions_are_those_of_all_orders():
    def either_or_both(visible: torch.Tensor) -> torch.Tensor:
        a, b, c, d = visible.unbind(-1)
        return 2 * torch.maximum(a, b) + 3 * c * d - a * c

    exact = np.zeros(4)
    for order in permutations(range(4)):
        shown = torch.zeros(4)
        for region in order:
            before = float(either_or_both(shown))
            shown[region] = 1
            exact[region] += (float(either_or_both(shown)) - before) / math.factorial(4)
    draws = perturbation.shapley(game(either_or_both, (2, 2)))[0]
    error = draws.std(0) / len(draws) ** 0.5
    assert (np.abs(draws.mean(0).numpy() - exact) < 4 * error.numpy() + 1e-6).all()
    assert draws.sum(1).tolist() == pytest.approx([float(either_or_both(torch.ones(4)))] * len(draws))


def test_windows_share_their_fall_among_their_regions():
    rows, cols = GRID
    falls = WEIGHTS.view(GRID).numpy()
    expected = np.zeros(GRID)
    for row in range(rows):
        for col in range(cols):
            windows = [
                [
                    falls[r, c]
                    for r in range(top - 1, top + 2)
                    for c in range(left - 1, left + 2)
                    if 0 <= r < rows and 0 <= c < cols
                ]
                for top in range(row - 1, row + 2)
                for left in range(col - 1, col + 2)
            ]
            expected[row, col] = np.mean([np.mean(window) for window in windows])
    scores = perturbation.occlusion_by_windows(game(additive))[0, 0].view(GRID)
    assert scores.numpy() == pytest.approx(expected, abs=1e-5)


def test_rise_is_the_mean_probability_of_the_masks_that_show_a_region():
    trial = game(lambda visible: visible @ WEIGHTS / 10 - 2)
    masks = perturbation.random_masks(GRID, perturbation.MASKS, torch.Generator().manual_seed(0)).numpy()
    assert masks.shape == (perturbation.MASKS, REGIONS)
    assert 0 <= masks.min() <= masks.max() <= 1
    assert masks.mean() == pytest.approx(perturbation.VISIBLE, abs=0.05)
    expected = [
        sum(math.exp(mask @ WEIGHTS.numpy() / 10 - 2) * mask[i] for mask in masks) / masks[:, i].sum()
        for i in range(REGIONS)
    ]
    assert perturbation.rise(trial)[0, 0].numpy() == pytest.approx(expected, rel=1e-4)


def test_integrated_gradients_of_a_linear_model_and_of_a_square():
    vectors = torch.randn(1, REGIONS, 5, generator=torch.Generator().manual_seed(1))
    slope = torch.randn(1, REGIONS, 5, generator=torch.Generator().manual_seed(2))
    trial = game(additive)
    trial.step.views, trial.vectors = (Regions(vectors, GRID),), vectors
    reference = vectors.mean(1, keepdim=True)
    trial.gradient = lambda at=vectors: slope
    assert torch.allclose(
        gradients.integrated_gradients(trial)[:, 0], ((vectors - reference) * slope).sum(-1)
    )
    trial.gradient = lambda at=vectors: 2 * at  # of Σ a²: the map is a² − r²
    expected = (vectors**2 - reference**2).sum(-1)
    assert torch.allclose(gradients.integrated_gradients(trial)[:, 0], expected, atol=1e-4)
    assert torch.allclose(gradients.smooth_grad(trial)[:, 0], 2 * vectors.norm(dim=-1), rtol=0.5, atol=1.0)


# -- on a model -------------------------------------------------------------------------------------------------------


def first_trial(model: Any, number: int = 1) -> Trial:
    (batch,), replay = sentences(model, tiny_captioner.photo()), Replay(model.decoder)
    step = list(replay.steps(batch))[number]
    return Trial(replay, step, None, torch.Generator().manual_seed(0))  # type: ignore[arg-type]


def test_integrated_gradients_sum_to_the_change_of_log_p():
    trial = first_trial(tiny_captioner.captioner())
    view = trial.step.views[0]
    blank = view._replace(vectors=view.vectors.mean(1, keepdim=True).expand_as(view.vectors))
    decoder = trial.replay.decoder
    with torch.no_grad():
        state = trial.step.state._replace(shared=decoder.project((blank,)))
        at_reference = trial.step.of_word(decoder.step(state, trial.step.inputs)[0])[0, 0]
    change = trial.step.log_prob[0] - at_reference
    assert float(gradients.integrated_gradients(trial).sum()) == pytest.approx(float(change), abs=1e-4)


def test_grad_cam_by_loops():
    trial = first_trial(tiny_captioner.captioner())
    a, g = trial.vectors[0].numpy(), trial.gradient()[0].numpy()
    regions, features = a.shape
    w = [sum(g[i, k] for i in range(regions)) / regions for k in range(features)]
    expected = [max(0.0, sum(w[k] * a[i, k] for k in range(features))) for i in range(regions)]
    assert grad_cam.grad_cam(trial)[0, 0].numpy() == pytest.approx(expected, abs=1e-6)
    plus = np.zeros(features)
    for k in range(features):
        total = sum(a[j, k] for j in range(regions))
        for i in range(regions):
            divisor = 2 * g[i, k] ** 2 + total * g[i, k] ** 3
            share = g[i, k] ** 2 / divisor if divisor else 0.0
            plus[k] += share * max(0.0, g[i, k])
    expected = [max(0.0, float(a[i] @ plus)) for i in range(regions)]
    assert grad_cam.grad_cam_plus_plus(trial)[0, 0].numpy() == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_every_method_finds_the_region_that_the_word_is_read_from():
    """Word two of the planted model is read from region 2, and attention is mostly on region 0."""
    model = planted.captioner([0.5, 0.1, 0.3, 0.05, 0.05, 0.0])
    given = [planted.caption_of("two")]
    for name in ("gradient-x-input", "gradient-of-hiding", "occlusion", "shapley", "rise", "posterior"):
        result = caption.maps(model, planted.photo(), given, name)
        assert result.weights.shape == (1, planted.ROWS, planted.COLS)
        assert result.weights.argmax() == 2, name
    shapley = caption.maps(model, planted.photo(), given, "shapley")
    assert shapley.maps[ERROR].shape == shapley.weights.shape
    assert (shapley.maps[ERROR] >= 0).all()
    assert not shapley.properties.sums_to_one


def test_a_map_is_a_caption_that_is_drawn_and_written_like_any_other(tmp_path):
    result = caption.maps(tiny_captioner.captioner(), tiny_captioner.photo(), method="gradcam")
    own = tiny_captioner.captioner().describe(tiny_captioner.photo())
    assert (result.text, result.box, result.seen) == (own.text, own.box, own.seen)
    assert result.plot().axes
    assert result.words[0] in result.to_html()
    result.save_attention(tmp_path / "map.npz")
    with np.load(tmp_path / "map.npz") as arrays:
        assert np.array_equal(arrays["weights"], result.weights)


def test_maps_of_captions_become_the_order_of_deletion():
    model = tiny_captioner.captioner()
    photos = [tiny_captioner.photo(seed=seed) for seed in range(2)]
    captions = model.describe(photos)
    (batch,), replay = sentences(model, photos, captions), Replay(model.decoder)
    score = scores_of(captions)
    for step in replay.steps(batch):
        scores = score(Trial(replay, step, None, torch.Generator()))  # type: ignore[arg-type]
        assert torch.allclose(scores[:, 0], step.weights, atol=1e-5)


# -- maps of the mechanism --------------------------------------------------------------------------------------------


def test_sinks_are_taken_out_of_each_map():
    """Region 0 takes 0.9 of every word in the first head; in the second, only of one photo's words."""
    sink, free = np.array([0.9, 0.1, 0.0, 0.0]), np.array([0.1, 0.1, 0.2, 0.6])
    captions = []
    for second in (sink, free):
        heads = np.stack([np.stack([sink, second])] * 3).reshape(3, 2, 2, 2)
        captions.append(caption_of("abc", heads.mean(1), maps={"heads": heads}))
    first, other = attention.without_sinks(None, [], captions)  # type: ignore[arg-type]
    moved = np.array([0, 1, 0, 0])
    assert first.weights[0].flatten() == pytest.approx((moved + sink) / 2)
    assert other.weights[1].flatten() == pytest.approx((moved + free) / 2)
    with pytest.raises(UserError, match="give two or more photos"):
        attention.without_sinks(None, [], captions[:1])  # type: ignore[arg-type]


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("gradcm", r"no map 'gradcm' \(did you mean gradcam\?\): the methods are attention, .*chance"),
        ("heads[2]", "no map 'heads"),
        ("rollout", "without a refiner does not show"),
        ("lens", "has no lens: load it with"),
        ("other-photo", "give two or more photos"),
        ("mean-map", "give two or more photos"),
        ("without-sinks", "give two or more photos"),
    ],
)
def test_a_method_that_is_not_possible_says_why(method, message):
    with pytest.raises(UserError, match=message):
        caption.maps(tiny_captioner.captioner(), tiny_captioner.photo(), method=method)


def test_other_objects_than_captioners_are_refused():
    with pytest.raises(UserError, match="not by Linear: exported and quantised models"):
        caption.maps(torch.nn.Linear(1, 1), tiny_captioner.photo())  # type: ignore[call-overload]


def test_a_model_without_gradients_is_told_to_hide_regions():
    model = tiny_captioner.captioner()
    step = model.decoder.step
    model.decoder.step = torch.no_grad()(step)  # type: ignore[method-assign]
    with pytest.raises(UserError, match=r"computes without gradients.*such as occlusion"):
        caption.maps(model, tiny_captioner.photo(), method="gradcam")


def test_hard_attention_reads_its_expectation():
    model = tiny_captioner.captioner(alignment=Multinoulli())
    first, second = (caption.maps(model, tiny_captioner.photo(), method="occlusion") for _ in range(2))
    assert np.array_equal(first.weights, second.weights)
    assert METHODS["occlusion"].replays
