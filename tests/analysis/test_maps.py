"""Map methods: closed forms on games whose answer is known, each paper's formula a second time, and what is refused."""

from __future__ import annotations

import math
import re
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import planted, tiny_captioner
from helpers.captions import caption_of
from helpers.training import fit

import caption
from caption.analysis.maps import METHODS, attention, grad_cam, gradients, perturbation, relevance
from caption.analysis.maps.method import ERROR
from caption.analysis.maps.trial import Trial, scores_of
from caption.analysis.replay import Replay, sentences
from caption.attention import MultiHeadAttention, Multinoulli
from caption.core.errors import CheckpointError, UserError
from caption.core.regions import Regions
from caption.data.photos import ImageTransform
from caption.data.shapes import Shapes
from caption.decoders import TransformerDecoder
from caption.encoders import CBAMRefiner, SelfAttentionRefiner
from caption.models.checkpoint import load
from caption.objectives import CrossEntropy, GuidedAttention, WeightedSum

GRID = (3, 4)
REGIONS = math.prod(GRID)
WEIGHTS = torch.linspace(-1, 2, REGIONS)


def game(log_probs: Any, grid: tuple[int, int] = GRID) -> Any:
    """A trial in which log p is a function of how much of each region is visible, (..., L) -> (...)."""
    everything = torch.ones(1, math.prod(grid))
    step = SimpleNamespace(
        weights=everything,
        log_prob=log_probs(everything),
        views=(Regions(everything[..., None], grid),),
        number=1,
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


def test_the_time_of_shapley_values_is_said_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    trial = game(additive)
    trial.step.number = 0
    perturbation.shapley(trial)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(perturbation, "SAID", set())
    monkeypatch.setattr(perturbation, "PATIENCE", 0.0)
    perturbation.shapley(trial)
    said = capsys.readouterr().err
    assert re.fullmatch(r"shapley: about \d+ seconds for each word, with 12 regions; Ctrl-C stops\n", said)
    perturbation.shapley(trial)
    assert capsys.readouterr().err == ""  # once


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
    trial.gradients = slope.expand_as
    assert torch.allclose(
        gradients.integrated_gradients(trial)[:, 0], ((vectors - reference) * slope).sum(-1)
    )
    trial.gradients = lambda copies: 2 * copies  # of Σ a²: the map is a² − r²
    expected = (vectors**2 - reference**2).sum(-1)
    assert torch.allclose(gradients.integrated_gradients(trial)[:, 0], expected, atol=1e-4)
    assert torch.allclose(gradients.smooth_grad(trial)[:, 0], 2 * vectors.norm(dim=-1), rtol=0.5, atol=1.0)


# -- on a model -------------------------------------------------------------------------------------------------------


def first_trial(model: Any, number: int = 1) -> Trial:
    (batch,), replay = sentences(model, tiny_captioner.photo()), Replay(model.decoder)
    step = list(replay.steps(batch))[number]
    return Trial(replay, step, None, torch.Generator().manual_seed(0))  # type: ignore[arg-type]


def test_gradients_of_many_copies_are_those_of_each_alone():
    model = tiny_captioner.captioner()
    (batch,), replay = (
        sentences(model, [tiny_captioner.photo(), tiny_captioner.photo(seed=1)]),
        Replay(model.decoder),
    )
    trial = Trial(replay, list(replay.steps(batch))[1], None, torch.Generator())  # type: ignore[arg-type]
    copies = trial.vectors + torch.randn(11, *trial.vectors.shape, generator=torch.Generator().manual_seed(3))
    together = trial.gradients(copies)
    for copy, gradient in zip(copies, together, strict=True):
        assert torch.allclose(gradient, replay.gradient(trial.step, copy), atol=1e-6)


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
    assert (result.text, result.box, result.seen, result.method) == (own.text, own.box, own.seen, "gradcam")
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


# -- relevance --------------------------------------------------------------------------------------------------------


def test_relevance_of_one_layer_by_hand():
    """R_ii = I + A, R_tt = I + S, R_ti = R̄_ttᵀ C R̄_ii, with R̄ = I + the rest in rows of the sum 1."""
    among_regions = torch.tensor([[0.0, 0.2], [0.3, 0.1]])
    among_words = torch.tensor([[0.5, 0.0], [0.1, 0.3]])
    read = torch.tensor([[0.4, 0.0], [0.0, 0.8]])
    regions_mixed = torch.tensor([[1.0, 1.0], [0.75, 1.25]])
    words_mixed = torch.tensor([[2.0, 0.0], [0.25, 1.75]])
    expected = words_mixed.T @ read @ regions_mixed
    assert torch.allclose(relevance.propagate([among_regions], [(among_words, read)]), expected)
    # A second layer passes on what the words have read: R_ti + S R_ti, and R_tt + S R_tt.
    words_twice = torch.eye(2) + among_words + among_words @ (torch.eye(2) + among_words)
    rest = words_twice - torch.eye(2)
    words_twice = rest / rest.sum(1, keepdim=True) + torch.eye(2)
    expected = expected + among_words @ expected + words_twice.T @ read @ regions_mixed
    layers = [(among_words, read)] * 2
    assert torch.allclose(relevance.propagate([among_regions], layers), expected, atol=1e-6)


def test_relevance_of_a_transformer_with_gradients_by_differences():
    """∇A of each weight by changing it a little; 2 x 2 regions with self-attention, two heads everywhere."""
    attends = MultiHeadAttention(2, 8)
    decoder = TransformerDecoder(attends, layers=1, hidden_size=8, heads=2, inner_size=8, dropout=0.0)
    refiner = SelfAttentionRefiner(None, 1, 2, dropout=0.0)
    options = {"transform": ImageTransform(8, "squash"), "decoder": decoder, "refiner": refiner}
    model = tiny_captioner.captioner(**options)
    decoder.double()
    refiner.double()
    result = caption.maps(model, tiny_captioner.photo(), method="relevance")
    (batch,) = sentences(model, tiny_captioner.photo())
    places = [
        refiner.self_attentions()[0][0].product.maps, decoder.layers[0].product.maps,
        decoder.layers[0].attention.maps,
    ]  # fmt: skip
    count = len(result.words)
    step = count - 1

    def log_p(place: Any = None, index: Any = None) -> tuple[float, torch.Tensor]:
        weights = []

        def change(module: Any, args: Any, maps: Any) -> Any:
            weights.append(maps if isinstance(maps, torch.Tensor) else maps.heads)
            moved = weights[-1].contiguous().clone()
            if index is not None:
                moved.view(-1)[index] += 1e-5
            return moved if isinstance(maps, torch.Tensor) else maps._replace(heads=moved)

        with torch.no_grad():
            hook = (place or places[0]).register_forward_hook(change)
            fed = model.unroll(batch.encoded, batch.inputs[:, None], batch.lengths[:, None])
            hook.remove()
        logits = fed.unpack(fed.logits)[0, 0].log_softmax(-1)
        return float(logits[step, batch.words[0, step]]), weights[0]

    before, means = log_p()[0], []
    for place in places:
        weights = log_p(place)[1]
        slopes = [(log_p(place, index)[0] - before) / 1e-5 for index in range(weights.numel())]
        read = (weights * torch.tensor(slopes).view_as(weights)).clamp_min(0)
        means.append((read[0, 0] if place is places[1] else read[0]).float())
    mixed, spoken = means[0].mean(0), means[1].mean(0)
    assert (mixed.shape, spoken.shape, means[2].shape) == ((4, 4), (count, count), (count, 2, 4))
    expected = relevance.propagate([mixed], [(spoken, means[2].mean(1))])[step]
    assert result.weights[step].flatten() == pytest.approx(expected.numpy(), abs=1e-5)
    assert result.weights[step].max() > 1e-3


def test_attention_times_gradient_of_the_planted_model():
    """log p = s z_2 − log Σ exp: ∇α_i = s (e_2 − p)_i, so that only region 2 has a positive product."""
    weights = [0.5, 0.1, 0.3, 0.05, 0.05, 0.0]
    result = caption.maps(
        planted.captioner(weights), planted.photo(), [planted.caption_of("two")], "attention-x-gradient"
    )
    slope = planted.STRENGTH * (1 - math.exp(planted.log_p(2, weights)))
    assert result.weights.flatten() == pytest.approx([0, 0, 0.3 * slope, 0, 0, 0], abs=1e-5)


# -- maps of the mechanism --------------------------------------------------------------------------------------------


def test_sinks_are_taken_out_of_each_map():
    """Region 0 takes 0.9 of every word in the first head; in the second, only of one photo's words."""
    sink, free = np.array([0.9, 0.1, 0.0, 0.0]), np.array([0.1, 0.1, 0.2, 0.6])
    captions = []
    for second in (sink, free):
        heads = np.stack([np.stack([sink, second])] * 3).reshape(3, 2, 2, 2)
        captions.append(caption_of("abc", heads.mean(1), maps={"heads": heads}))
    first, other = METHODS["without-sinks"](tiny_captioner.captioner(), [], captions)
    moved = np.array([0, 1, 0, 0])
    assert first.weights[0].flatten() == pytest.approx((moved + sink) / 2)
    assert other.weights[1].flatten() == pytest.approx((moved + free) / 2)
    least = attention.without_sinks(tiny_captioner.captioner(), [], captions, sink=0.01)[0]
    assert least.weights[0].flatten() == pytest.approx(
        [0, 0, 0, 0]
    )  # no other region is left of the first head


def test_maps_are_weighted_by_how_concentrated_they_are_beside_their_peak():
    """Of [0.5, 0.3, 0.1, 0.1] the rest has 0.3 log 1.8 + 0.2 log 0.6 nats; an even map has none, nor has a sink."""
    sharp, even, sink = np.array([0.5, 0.3, 0.1, 0.1]), np.full(4, 0.25), np.array([0.01, 0.01, 0.97, 0.01])
    wide = np.array([0.6, 0.2, 0.1, 0.1])
    nats = [0.3 * math.log(1.8) + 0.2 * math.log(0.6), 0.2 * math.log(1.5) + 0.2 * math.log(0.75)]
    mixed = (nats[0] ** 2 * sharp + nats[1] ** 2 * wide) / (nats[0] ** 2 + nats[1] ** 2)
    for others, expected in (([even, sink], sharp), ([wide, sink], mixed)):
        for sign in (1, -1):  # of signed maps, the size counts
            heads = sign * np.stack([sharp, *others]).reshape(1, 3, 2, 2)
            given = caption_of(["a"], heads.mean(1), maps={"heads": heads})
            (drawn,) = METHODS["concentrated"](tiny_captioner.captioner(), [], [given])
            assert drawn.weights.flatten() == pytest.approx(sign * expected, abs=1e-6)


def test_word_detectors_are_those_of_the_training(tmp_path: Path, reader: Shapes):
    guided = GuidedAttention(CrossEntropy(), words=100, smoothing=0.7)
    training = fit(tmp_path, reader, max_steps=3, objective=WeightedSum([guided], [1.0]))
    training.trainer.save_checkpoint(tmp_path / "guided.ckpt")
    model, photo = load(tmp_path / "guided.ckpt"), reader.read()["val"][0].path
    own, method = "red", f"detectors={tmp_path / 'guided.ckpt'}"
    given = caption_of([own, "a", "zebra"], np.zeros((3, 1, 1)))
    (drawn,) = caption.maps(model, [photo], [given], method)
    trained = guided.detectors
    with torch.no_grad():
        log_odds = trained(model.encode([photo])[0])[0, :, trained.index[model.vocabulary[own]]]
    assert drawn.weights[0].flatten() == pytest.approx(log_odds.softmax(0).numpy(), abs=1e-6)
    assert drawn.weights[0].std() > 0
    assert not drawn.weights[1:].any()  # "a" is in all captions, and "zebra" in none
    contents = torch.load(tmp_path / "guided.ckpt", weights_only=True)
    contents["state_dict"]["objective.objectives.0.detectors.layer.weight"].zero_()
    torch.save(contents, tmp_path / "guided.ckpt")
    (even,) = caption.maps(model, [photo], [given], method)  # the file as it is now
    assert even.weights[0].std() == pytest.approx(0, abs=1e-6)
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        caption.maps(model, photo, method="detectors=missing.ckpt")
    with pytest.raises(UserError, match="read another encoder"):
        caption.maps(tiny_captioner.captioner(), tiny_captioner.photo(), method=method)
    with pytest.raises(
        UserError, match="shapes has no word detectors: take the checkpoint of a training with"
    ):
        caption.maps(model, photo, method="detectors=shapes")


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "gradcm",
            r"no map 'gradcm' \(did you mean gradcam\?\): the methods are attention, .*chance, detectors=CHECKPOINT",
        ),
        ("heads[2]", "no map 'heads"),
        ("rollout", "without a refiner does not show"),
        ("relevance", "CBAMRefiner mixes regions in a way that relevance does not cover"),
        ("lens", "has no lens: load it with"),
        ("other-photo", "compares photos: give two or more"),
        ("mean-map", "compares photos: give two or more"),
        ("without-sinks", "compares photos: give two or more"),
    ],
)
def test_a_method_that_is_not_possible_says_why(method, message):
    model = tiny_captioner.captioner(refiner=CBAMRefiner(2) if method == "relevance" else None)
    with pytest.raises(UserError, match=message):
        caption.maps(model, tiny_captioner.photo(), method=method)


def test_other_objects_than_captioners_are_refused():
    with pytest.raises(UserError, match="not by Linear: exported and quantised models"):
        caption.maps(torch.nn.Linear(1, 1), tiny_captioner.photo())  # type: ignore[call-overload]


@pytest.mark.parametrize("method", ["gradcam", "gradient-of-hiding", "attention-x-gradient", "relevance"])
def test_a_model_without_gradients_is_told_to_hide_regions(method: str):
    model = tiny_captioner.captioner()
    for name in ("step", "forward"):
        setattr(model.decoder, name, torch.no_grad()(getattr(model.decoder, name)))
    with pytest.raises(UserError, match=r"computes without gradients.*such as occlusion"):
        caption.maps(model, tiny_captioner.photo(), method=method)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", ["gradcam", "gradient-of-hiding", "attention-x-gradient", "relevance"])
def test_a_quantised_model_is_told_to_hide_regions(method: str):
    """Layers of torch.ao end the graph: gradients would be 0."""
    model = tiny_captioner.captioner()
    quantised = torch.ao.quantization.quantize_dynamic(model, {"decoder.readout"}, dtype=torch.qint8)
    with pytest.raises(UserError, match=r"computes without gradients.*such as occlusion"):
        caption.maps(quantised, tiny_captioner.photo(), method=method)
    assert caption.maps(quantised, tiny_captioner.photo(), method="occlusion").weights.any()


def test_a_single_region_has_no_map():
    model = tiny_captioner.captioner(transform=ImageTransform(4, "squash"))
    with pytest.raises(UserError, match="SmallCNN gives one region, so that there is no map"):
        caption.maps(model, tiny_captioner.photo(), method="gradcam")


def test_hard_attention_reads_its_expectation():
    model = tiny_captioner.captioner(alignment=Multinoulli())
    first, second = (caption.maps(model, tiny_captioner.photo(), method="occlusion") for _ in range(2))
    assert np.array_equal(first.weights, second.weights)
    assert METHODS["occlusion"].replays
