"""Self-attention recorded, and rollout through a refiner that is built to move objects elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.loops import linear, parameters, softmax
from helpers.tiny_captioner import captioner, photo
from torch import nn

from caption.analysis.replay import words_alone
from caption.analysis.self_attention import RegionMaps, has_rollout, region_maps, rollout, word_maps
from caption.analysis.study import Images, Subject
from caption.attention import HeadGates, MultiHeadAttention
from caption.box import Box
from caption.captioner import Captioner
from caption.data.photo_boxes import BoxedPhoto
from caption.data.resize import ImageTransform
from caption.decoders import TransformerDecoder
from caption.encoders import (
    CBAMRefiner,
    LinearRefiner,
    Refiner,
    Refiners,
    RelativeBias,
    SelfAttentionRefiner,
    TransformerRefiner,
)
from caption.errors import UserError
from caption.regions import Regions
from caption.result import Caption

AWAY = 3
"""Columns by which the built refiner moves what a region shows."""


def refined(refiner: Refiner, **options: object) -> Captioner:
    return captioner(refiner=refiner, **options)  # 8x8 regions of length 6


def test_the_maps_are_those_of_the_layers():
    model = refined(SelfAttentionRefiner(None, 2, 2, dropout=0.5))
    first, second = region_maps(model.train(), [photo(), photo(seed=1)], batch_size=1)
    assert model.training
    assert [heads.shape for heads in first.layers] == [(2, 64, 64)] * 2
    np.testing.assert_allclose(np.sum(first.layers, -1), 1, rtol=1e-5)
    assert not np.allclose(first.layers[1], second.layers[1])
    # The first layer: softmax(LN(a) W^Q (LN(a) W^K)ᵀ / √d), one region and head.
    vectors = model.eval().encode([photo()])[0].vectors[0]
    view = model.refiner.views[0]
    normed, p = view.layers.norms[0](vectors).detach().numpy(), parameters(view.layers.attend[0])
    q, k = linear(p, "queries", normed[5])[3:], [linear(p, "keys", x)[3:] for x in normed]
    alpha = softmax([q @ key / 3**0.5 for key in k])
    np.testing.assert_allclose(first.layers[0][1, 5], alpha, rtol=1e-4)


def test_cells_are_drawn_as_words():
    maps = region_maps(refined(SelfAttentionRefiner(None, 3, 2)), photo())[0]
    caption = maps.of_cells((2, 3), (0, 1))
    assert caption.words == ["(2, 3)", "(0, 1)"]
    assert sorted(caption.maps) == ["layer 0", "layer 1"]
    for number in (0, 1):
        of_layer = caption.maps[f"layer {number}"]
        assert of_layer.shape == (2, 3, 8, 8)
        np.testing.assert_array_equal(of_layer[0].reshape(3, 64), maps.layers[number][:, 2 * 8 + 3])
    np.testing.assert_allclose(
        caption.weights[1].ravel(), np.stack(maps.layers)[:, :, 1].mean((0, 1)), rtol=1e-5
    )
    assert caption.seen == (20, 0, 60, 40)
    assert len(maps.of_cells().words) == 64
    with pytest.raises(ValueError, match=r"8 rows and 8 columns has no cell \(8, 0\)"):
        maps.of_cells((8, 0))


def test_words_look_at_the_words_before():
    decoder = TransformerDecoder(MultiHeadAttention(2, 8), layers=2, hidden_size=8, heads=2, inner_size=12)
    model = captioner(decoder=decoder)
    words = ["a", "cat", "sits", "a"]
    steps = len(words)
    maps, none = word_maps(model, [photo(), photo(seed=1)], [words_alone(words), words_alone([])])
    layers = maps.self_attention
    assert maps.words == words
    assert [heads.shape for heads in layers] == [(2, steps, steps)] * 2
    assert [heads.shape for heads in none.self_attention] == [(2, 0, 0)] * 2
    np.testing.assert_allclose(np.sum(layers, -1), 1, rtol=1e-5)
    assert (np.triu(layers, 1) == 0).all()
    # The first layer, from its weights: queries, keys and values are rows of one matrix.
    ids = [1, *(model.vocabulary[word] for word in words[:-1])]
    hidden = (decoder.embed.weight[ids] * 8**0.5 + decoder.positions[:steps]).detach()
    p = parameters(decoder.layers[0])
    projected = [linear(p, "projections", x) for x in decoder.layers[0].norms[0](hidden).detach().numpy()]
    for head in (0, 1):
        q, k = (np.array(projected)[:, part + 4 * head : part + 4 * head + 4] for part in (0, 8))
        for step in range(steps):
            alpha = softmax([q[step] @ k[before] / 2 for before in range(step + 1)])
            np.testing.assert_allclose(layers[0][head, step, : step + 1], alpha, atol=1e-5)


def test_rollout_is_the_product_of_the_layers():
    weights = np.random.default_rng(0).dirichlet(np.ones(6), (3, 2, 6)).astype(np.float32)
    gates = np.array([[1, 1], [0.5, 0], [0, 0]], np.float32)  # in the last layer all heads are closed
    maps = RegionMaps(tuple(weights), tuple(gates), (2, 3), Box(0, 0, 3, 2), Box(0, 0, 3, 2))
    one = 0.3 * np.eye(6) + 0.7 * weights[0].mean(0)
    two = 0.3 * np.eye(6) + 0.7 * weights[1, 0]
    np.testing.assert_allclose(maps.rollout(0.3), two @ one, rtol=1e-6)
    np.testing.assert_allclose(maps.rollout().sum(-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(maps.rollout(1), np.eye(6))
    with pytest.raises(ValueError, match=r"residual is 1.5: it is a share from 0 to 1"):
        maps.rollout(1.5)


def test_gates_count_in_rollout():
    model = refined(SelfAttentionRefiner(None, 2, gates=HeadGates()))
    model.refiner.views[0].layers.attend[0].gates.weight.data.copy_(torch.tensor([-0.9, 0.9]))
    (maps,) = region_maps(model, photo())
    assert maps.gates[0].tolist() == [0, 1]
    np.testing.assert_allclose(maps.rollout(0), maps.layers[0][1], rtol=1e-6)


def moving_captioner() -> Captioner:
    """Two layers in which each region reads the one `AWAY` columns to its right, and adds it to itself."""
    refiner = SelfAttentionRefiner(None, 1, 2, RelativeBias(7), dropout=0)
    model = refined(refiner, transform=ImageTransform(32, "squash"))
    (view,) = refiner.views
    with torch.no_grad():
        view.positions.biases.zero_()
        view.positions.biases[0, 7, 7 + AWAY] = 50.0  # the same row, AWAY columns further
        for layer in view.layers.attend:
            for projection in (layer.queries, layer.keys):
                nn.init.zeros_(projection.weight)
            for projection in (layer.values, layer.join):
                projection.weight.copy_(torch.eye(6))
                nn.init.zeros_(projection.bias)
    return model


def test_maps_are_rolled_out_onto_what_the_refined_regions_carry():
    """The planted decoder finds each object in the refined region that carries it, three columns to the left."""
    model, places = moving_captioner(), [(2, 1), (5, 0)]
    weights, expected = np.zeros((2, 2, 8, 8))
    for word, (row, col) in enumerate(places):
        weights[word, row, col] = 1
        expected[word, row, col : col + 2 * AWAY + 1 : AWAY] = 0.25, 0.5, 0.25
    caption = Caption("red circle", ["red", "circle"], weights, 0.0, np.zeros(2), (0, 0, 64, 64))
    assert has_rollout(model)
    (rolled,) = rollout(model, photo(64, 64), [caption])
    np.testing.assert_allclose(rolled.weights, expected, atol=1e-5)
    # The refined region does carry the object: it depends on that region most.
    vectors = torch.randn(1, 64, 6, generator=torch.Generator().manual_seed(0))
    for row, col in places:
        sources = torch.autograd.functional.jacobian(
            lambda vectors, place=row * 8 + col: model.refine((Regions(vectors, (8, 8)),))[0].vectors[
                0, place
            ],
            vectors,
        )
        assert int(sources[:, 0].square().sum((0, 2)).argmax()) == row * 8 + col + AWAY


def test_the_study_of_a_model_with_self_attention_has_rolled_out_maps(tmp_path: Path):
    model = refined(SelfAttentionRefiner(None, 2))
    paths = [tmp_path / f"{seed}.png" for seed in range(2)]
    for seed, path in enumerate(paths):
        photo(seed=seed).save(path)
    captions = model.describe(paths)
    box = [(0.0, 0.0, 30.0, 20.0)]
    named = zip(paths, captions, strict=True)
    boxed = [BoxedPhoto(path, {caption.words[0]: box}, {}) for path, caption in named]
    played = Subject("mine", model, Images(list(map(str, paths)), boxed)).groundings
    rolled = played["rolled out through self-attention"].measured
    for one, other in zip(rolled, rollout(model, paths, captions), strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)
    assert list(played)[:2] == ["own maps", "rolled out through self-attention"]


def test_what_cannot_be_carried_back_is_refused():
    words = [photo()]
    for refiner in (LinearRefiner(), Refiners([SelfAttentionRefiner(8, 2), CBAMRefiner(2, 3)])):
        with pytest.raises(UserError, match=f"{type(refiner).__name__} does not say .*SelfAttentionRefiner"):
            rollout(refined(refiner), words)
        assert not has_rollout(refined(refiner))
    with pytest.raises(UserError, match="a model without a refiner does not say"):
        region_maps(captioner(), words)
    with pytest.raises(UserError, match="view is 1, and the encoder gives 1"):
        region_maps(refined(SelfAttentionRefiner(None, 2)), words, view=1)
    with pytest.raises(UserError, match="ShowAttendAndTellDecoder has no self-attention over words"):
        word_maps(captioner(), words)
    model = refined(Refiners([LinearRefiner(8), SelfAttentionRefiner(None, 2), SelfAttentionRefiner(6, 3)]))
    assert has_rollout(model)
    assert has_rollout(refined(TransformerRefiner(8, 2)))
    caption = model.describe(photo())
    assert rollout(model, words)[0].weights.shape == caption.weights.shape
    with pytest.raises(ValueError, match="2 captions for 1 photos"):
        rollout(model, words, [caption, caption])
    smaller = Caption("a", ["a"], np.ones((1, 4, 4)), 0.0, np.zeros(1), (0, 0, 1, 1))
    with pytest.raises(
        ValueError, match=r"on a grid of \(4, 4\), and the refiner's regions on one of \(8, 8"
    ):
        rollout(model, words, [smaller])
