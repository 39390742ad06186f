"""Self-attention recorded, and rollout through a refiner that is built to move objects elsewhere."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.loops import linear, parameters, softmax
from helpers.tiny_captioner import captioner, photo
from torch import nn

from caption.analysis.replay import words_alone
from caption.analysis.roles_of_heads import POSITIONAL, region_roles, word_roles
from caption.analysis.self_attention import RegionMaps, region_maps, word_maps
from caption.analysis.self_attention.rollout import attention_rollout, has_rollout, rollout
from caption.analysis.study import Images, Subject
from caption.attention import HeadGates, MultiHeadAttention
from caption.captioner import Captioner
from caption.core.box import Box
from caption.core.errors import UserError
from caption.core.regions import Regions
from caption.data.photo_boxes import BoxedPhoto
from caption.data.photos import ImageTransform
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
from caption.results.caption import Caption

AWAY = 3
"""Columns by which the built refiner moves what a region shows."""


def refined(refiner: Refiner, **options: object) -> Captioner:
    return captioner(refiner=refiner, **options)  # 8x8 regions of length 6


def test_the_maps_are_those_of_the_layers():
    model = refined(SelfAttentionRefiner(None, 2, 2, dropout=0.5))
    first, second = region_maps(model.train(), [photo(), photo(seed=1)], batch_size=1)
    assert model.training
    assert not any(part._forward_hooks for part in model.modules())  # recorded for this call alone
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
    with pytest.raises(ValueError, match=r"\(8, 0\)"):
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
    one = 0.3 * np.eye(6) + 0.7 * weights[0].mean(0)
    two = 0.3 * np.eye(6) + 0.7 * weights[1, 0]
    np.testing.assert_allclose(attention_rollout(weights, 0.3, gates), two @ one, rtol=1e-6)
    np.testing.assert_allclose(attention_rollout(weights).sum(-1), 1, rtol=1e-6)
    np.testing.assert_array_equal(attention_rollout(weights, 1, gates), np.eye(6))
    with pytest.raises(ValueError, match=r"residual is 1\.5"):
        attention_rollout(weights, 1.5)


def test_gates_count_in_rollout():
    model = refined(SelfAttentionRefiner(None, 2, gates=HeadGates()))
    model.refiner.views[0].layers.attend[0].gates.weight.data.copy_(torch.tensor([-0.9, 0.9]))
    (maps,) = region_maps(model, photo())
    assert maps.gates[0].tolist() == [0, 1]
    np.testing.assert_allclose(attention_rollout(maps.layers, 0, maps.gates), maps.layers[0][1], rtol=1e-6)


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
    mixed = refined(Refiners([SelfAttentionRefiner(8, 2), CBAMRefiner(2, 3)]))
    for call, said in (
        (
            lambda: rollout(refined(LinearRefiner()), words),
            "LinearRefiner does not show .*SelfAttentionRefiner",
        ),
        (lambda: rollout(mixed, words), "Refiners does not show"),
        (lambda: region_maps(captioner(), words), "a model without a refiner does not show"),
        (lambda: region_maps(refined(SelfAttentionRefiner(None, 2)), words, view=1), "view is 1, .* gives 1"),
        (lambda: word_maps(captioner(), words), "ShowAttendAndTellDecoder has no self-attention over words"),
    ):
        with pytest.raises(UserError, match=said):
            call()
    model = refined(Refiners([LinearRefiner(8), SelfAttentionRefiner(None, 2), SelfAttentionRefiner(6, 3)]))
    assert [has_rollout(one) for one in (mixed, model, refined(TransformerRefiner(8, 2)))] == [
        False,
        True,
        True,
    ]
    caption = model.describe(photo())
    assert rollout(model, words)[0].weights.shape == caption.weights.shape
    with pytest.raises(ValueError, match="2 captions for 1 photos"):
        rollout(model, words, [caption, caption])
    smaller = Caption("a", ["a"], np.ones((1, 4, 4)), 0.0, np.zeros(1), (0, 0, 1, 1))
    with pytest.raises(ValueError, match="lie on 16 regions, and the model has 64"):
        rollout(model, words, [smaller])


# -- roles of heads, planted: positional ones, one that looks at itself, one for rare words -------------------------

BOX = Box(0, 0, 1, 1)


def regions(*heads: np.ndarray, grid: tuple[int, int] = (3, 4)) -> RegionMaps:
    layer = np.stack(heads).astype(np.float32)
    return RegionMaps((layer,), (np.ones(len(heads), np.float32),), grid, BOX, BOX)


def looking(down: int, across: int, rows: int = 3, cols: int = 4) -> np.ndarray:
    """(L, L): each region looks at the one so far away, at 0.7; at all alike where there is none."""
    weights = np.full((rows * cols, rows * cols), 1 / (rows * cols))
    for row in range(rows):
        for col in range(cols):
            if 0 <= row + down < rows and 0 <= col + across < cols:
                query = row * cols + col
                weights[query] = 0.3 / (rows * cols - 1)
                weights[query, (row + down) * cols + col + across] = 0.7
    return weights


def test_heads_of_one_neighbour_are_positional():
    heads = [looking(0, -1), looking(1, 1), looking(0, 0), looking(0, 2), np.full((12, 12), 1 / 12)]
    roles = region_roles([regions(*heads), regions(*heads)])
    assert roles.labels == tuple(f"layer 0 head {m}" for m in range(5))
    assert roles.queries == 24
    # Regions without this neighbour do not count, as the first column has none to its left.
    assert roles.positional[:2].tolist() == [1, 1]
    assert roles.neighbour[:2] == ((0, -1), (1, 1))
    assert roles.is_positional.tolist() == [True, True, False, False, False]
    # Where it has no neighbour, a head looks at all twelve alike, itself among them.
    assert roles.at_itself.tolist() == pytest.approx([1 / 4 / 12, 6 / 12 / 12, 1, 2 / 4 / 12, 1 / 12])
    assert roles.confidence[[0, 2]].tolist() == pytest.approx([(0.7 * 9 + 3 / 12) / 12, 0.7])
    spread = -0.7 * math.log(0.7) - 0.3 * math.log(0.3 / 11)
    assert roles.entropy[[2, 4]].tolist() == pytest.approx([spread, math.log(12)])
    assert np.isnan(roles.rare).all()
    lines = [" ".join(line.split()) for line in str(roles).splitlines()]
    assert lines[0] == "24 queries confidence entropy itself neighbour there rare role"
    assert re.fullmatch(r"layer 0 head 0 0\.55 1\.\d\d 0\.02 \+0, -1 1\.00 – positional", lines[1])
    assert not lines[3].endswith("positional")


@pytest.mark.parametrize(("moved", "positional"), [(1, True), (2, False)])
def test_ninety_percent_are_needed(moved: int, positional: bool):
    """A head over 2 x 8 regions: 14 have a neighbour to the left, so 13 are 0.93 and 12 are 0.86 of them."""
    assert POSITIONAL == 0.9
    head = looking(0, -1, 2, 8)
    head[1 : 1 + moved] = np.eye(16)[12]
    roles = region_roles([regions(head, grid=(2, 8))])
    assert roles.positional[0] == pytest.approx((14 - moved) / 14)
    assert roles.is_positional.tolist() == [positional]


def words(said: list[str], *heads: list[int]) -> Caption:
    """Each head looks at the given place at each step."""
    layer = np.stack([np.eye(len(said), dtype=np.float32)[places] for places in heads])
    return replace(words_alone(said), self_attention=(layer,))


def test_words_look_at_the_word_before_or_at_the_rarest():
    # Fed: (start) a zebra a red, and (start) a.
    long = words(["a", "zebra", "a", "red", "a"], [0, 0, 1, 2, 3], [0, 1, 2, 2, 2], [0, 1, 2, 3, 4])
    short = words(["a", "red"], [0, 0], [0, 1], [0, 1])
    nothing = words_alone([])
    counts = {"a": 100, "red": 10}
    roles = word_roles([long, nothing, short], counts)
    assert roles.queries == 7
    assert roles.neighbour == ((0, -1),) * 3
    # The first step of a caption has no word before it.
    assert roles.positional.tolist() == [1, 1 / 5, 0]
    assert roles.at_itself.tolist() == pytest.approx([2 / 7, 5 / 7, 1])
    # Two words or more have been fed at steps 2, 3 and 4, and zebra, which has no count, is at 2.
    assert roles.rare.tolist() == pytest.approx([1 / 3, 1, 1 / 3])
    # Counted in the captions: a 4, red 2, zebra 1.
    assert word_roles([long, short]).rare.tolist() == roles.rare.tolist()
    assert word_roles([long], {"zebra": 100, "a": 1, "red": 5}).rare.tolist() == pytest.approx([1 / 3, 0, 0])


def test_a_head_is_syntactic_if_it_finds_the_related_word_where_its_place_changes():
    """Said: a b v, and a b to v; v is related to b, which is fed at 2. Of three such captions, two have it where v is
    said: a head that looks there always is right in two thirds, the offset that is the most frequent."""
    near, far = ["a", "b", "v"], ["a", "b", "to", "v"]

    def syntax(said: list[str]) -> dict[str, list[tuple[int, int]]]:
        return {"subject": [(said.index("v"), said.index("b"))], "none": []}

    captions = [
        words(said, [0, 0, 2, 2][: len(said)], [0, 1, 2, 3][: len(said)]) for said in (near, near, far)
    ]
    roles = word_roles(captions, syntax=syntax)
    assert roles.related["subject"].tolist() == pytest.approx([1, 2 / 3])
    assert roles.baselines["subject"] == pytest.approx(2 / 3)
    assert roles.is_syntactic["subject"].tolist() == [True, False]
    assert np.isnan(roles.related["none"]).all()
    assert not roles.is_syntactic["none"].any()
    lines = str(roles).splitlines()
    assert "subject (offset: 0.67)" in lines[0]
    assert [line.endswith("subject") for line in lines[1:3]] == [True, False]


def test_what_cannot_be_measured_is_said():
    with pytest.raises(ValueError, match="need the maps of one photo or more"):
        region_roles([])
    with pytest.raises(ValueError, match="all of one model on one grid"):
        region_roles([regions(looking(0, 0)), regions(looking(0, 0, 4, 3), grid=(4, 3))])
    with pytest.raises(ValueError, match="these captions have none"):
        word_roles([words_alone([])])
