"""Self-attention over regions, alone and in a Transformer, against its equation in NumPy."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
import torch
from helpers.loops import close, parameters, sigmoid
from helpers.refiner_cases import affine, built, check_equation, layer_norm, multi_head, random_views

from caption.attention import HeadGates, remove_closed_heads
from caption.core.errors import UserError
from caption.core.runtime.trust import make as make_part
from caption.encoders import (
    LearnedPositions,
    LinearRefiner,
    PlainSelfAttentionRefiner,
    Positions,
    Refiner,
    Refiners,
    RelativeBias,
    RelativeVectors,
    SelfAttentionRefiner,
    SinusoidalPositions,
    TransformerRefiner,
)


def expected(refiner, view, image: int, places=None, biases=None, offsets=None) -> np.ndarray:
    """The real regions of an image, refined as if there were no others."""
    weights = parameters(refiner.views[0])
    a = view.vectors[image].numpy()
    keep = np.ones(len(a), bool) if view.mask is None else view.mask[image].numpy()
    x = a[keep]
    if "enter.weight" in weights:
        x = affine(weights, "enter", x)
    if places is not None:
        x = x + places[keep]
    if biases is not None:
        biases = biases[:, keep][:, :, keep]
    if offsets is not None:
        offsets = tuple(of_pairs[keep][:, keep] for of_pairs in offsets)
    for n in range(refiner.depth):
        normed = layer_norm(weights, f"layers.norms.{n}", x)
        gates = None
        if (odds := weights.get(f"layers.attend.{n}.gates.weight")) is not None:  # a tenth of them
            # min(1, max(0, σ(log odds) (ζ - γ) + γ)) with γ = -0.1, ζ = 1.1 (Louizos et al. 2018, section 2)
            gates = [min(1, max(0, sigmoid(10 * odd) * 1.2 - 0.1)) for odd in odds]
        x = x + multi_head(
            weights, f"layers.attend.{n}", refiner.heads, normed, normed, biases, offsets, gates
        )
        if f"layers.inner.{n}.0.weight" in weights:  # the feed-forward network of a Transformer
            normed = layer_norm(weights, f"layers.inner_norms.{n}", x)
            inner = np.maximum(affine(weights, f"layers.inner.{n}.0", normed), 0)
            x = x + affine(weights, f"layers.inner.{n}.3", inner)
    return layer_norm(weights, "layers.leave", x)


def check(refiner, grid=(2, 3), masked=False, **terms) -> None:
    """The refiner gives what the equation gives."""
    (view,) = random_views((6,), (grid,), masked=masked)
    (refined,) = refiner((view,))
    for image in range(2):
        real = slice(None) if view.mask is None else view.mask[image]
        close(refined.vectors[image, real], expected(refiner, view, image, **terms))


MASKED = pytest.mark.parametrize("masked", [False, True])


@MASKED
@pytest.mark.parametrize(
    "make",
    [
        lambda: SelfAttentionRefiner(None, 1, 1),
        lambda: SelfAttentionRefiner(None, 3, 1),
        lambda: SelfAttentionRefiner(8, 4, 3),
        lambda: TransformerRefiner(8, 2, 2, inner_size=5),
    ],
    ids=["one head", "three heads", "three layers", "transformer"],
)
def test_it_is_the_equation(make: Callable[[], SelfAttentionRefiner], masked: bool):
    check(built(make(), (6,)), masked=masked)


@MASKED
def test_the_plain_form_is_the_softmax_of_products_times_the_regions(masked: bool):
    """softmax(X Xᵀ) X: x'_i = Σ_j exp(x_i · x_j) x_j / Σ_j exp(x_i · x_j)."""

    def equation(weights: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
        assert not weights
        odds = np.exp(sum(np.outer(x[:, d], x[:, d]) for d in range(6)))
        return np.stack([sum(e * row for e, row in zip(of_i, x, strict=True)) / sum(of_i) for of_i in odds])

    check_equation(PlainSelfAttentionRefiner(), equation, masked)


def test_dropout_leaves_the_residual():
    refiner = built(SelfAttentionRefiner(None, 2, dropout=1.0), (6,)).train()
    original = random_views((6,), ((2, 3),))
    weights = parameters(refiner.views[0])
    close(refiner(original)[0].vectors, layer_norm(weights, "layers.leave", original[0].vectors.numpy()))


# -- positions ------------------------------------------------------------------------------------------------------


def test_sinusoids_are_those_of_the_row_then_of_the_column():
    refiner = built(SelfAttentionRefiner(8, 2, positions=SinusoidalPositions()), (6,))
    places = np.zeros((6, 8))
    for i in range(6):
        for half, n in ((0, i // 3), (4, i % 3)):
            for k in range(2):
                angle = n / 10_000 ** (2 * k / 4)
                places[i, half + 2 * k] = np.sin(angle)
                places[i, half + 2 * k + 1] = np.cos(angle)
    check(refiner, places=places)


def test_learned_positions_are_a_vector_of_the_row_and_one_of_the_column():
    refiner = built(SelfAttentionRefiner(None, 2, positions=LearnedPositions(3, 5)), (6,))
    rows, cols = (parameters(refiner.views[0])[f"positions.{name}"] for name in ("row", "col"))
    assert rows.shape == (3, 3)
    assert cols.shape == (5, 3)
    places = np.stack([np.concatenate((rows[i // 3], cols[i % 3])) for i in range(6)])
    check(refiner, places=places)


def clipped_offsets(distance: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column, in a table of offsets, of each pair (12, 12) of regions of a 3 x 4 grid."""
    down, across = np.zeros((12, 12), int), np.zeros((12, 12), int)
    for i in range(12):
        for j in range(12):
            down[i, j] = distance + max(-distance, min(distance, j // 4 - i // 4))
            across[i, j] = distance + max(-distance, min(distance, j % 4 - i % 4))
    return down, across


@MASKED
@pytest.mark.parametrize("distance", [1, 3])
def test_relative_positions_are_a_bias_for_each_head_and_clipped_offset(distance: int, masked: bool):
    refiner = built(SelfAttentionRefiner(None, 2, 2, RelativeBias(distance)), (6,))
    down, across = clipped_offsets(distance)
    check(refiner, (3, 4), masked, biases=parameters(refiner.views[0])["positions.biases"][:, down, across])


@MASKED
@pytest.mark.parametrize("distance", [1, 3])
def test_relative_vectors_are_added_to_keys_and_values(distance: int, masked: bool):
    """e_ij = q_i · (k_j + w^K[clip(j - i)]) / √d; z_i = Σ_j α_ij (v_j + w^V[clip(j - i)]) (Shaw et al. 2018)."""
    refiner = built(SelfAttentionRefiner(None, 2, 2, RelativeVectors(distance)), (6,))
    weights, (down, across) = parameters(refiner.views[0]), clipped_offsets(distance)
    keys, values = (weights[f"positions.{name}"][:, down, across] for name in ("keys", "values"))
    check(refiner, (3, 4), masked, offsets=(keys.transpose(1, 2, 0), values.transpose(1, 2, 0)))


@pytest.mark.parametrize(
    ("positions", "learned"),
    [(SinusoidalPositions, False), (lambda scale: LearnedPositions(32, 32, scale), True)],
)
def test_both_encodings_start_at_their_scale(positions: Callable[..., Positions], learned: bool):
    torch.manual_seed(0)
    for scale in (0.02, 0.5**0.5, 3.0):
        made = positions(scale=scale)
        made.build(64, 4)
        vectors = made.vectors((32, 32), torch.zeros(1, dtype=torch.float64))
        assert float(vectors.detach().square().mean()) ** 0.5 == pytest.approx(
            scale, rel=0.05 if learned else 1e-6
        )
        assert vectors.requires_grad == learned
    with pytest.raises(UserError, match="scale 0"):
        positions(scale=0)


# -- gates ----------------------------------------------------------------------------------------------------------


def test_gates_scale_the_heads_of_each_layer():
    refiner = built(SelfAttentionRefiner(8, 4, 2, gates=HeadGates()), (6,))
    layers = refiner.views[0].layers.attend
    for layer, odds in zip(layers, ([-9.0, 0.0, 0.5, 9.0], [9.0, 9.0, 1.0, -9.0]), strict=True):
        layer.gates.weight.data.copy_(torch.tensor(odds) / layer.gates.speed)
    check(refiner)
    (original,) = random_views((6,), ((2, 3),))
    # A closed head does not depend on its values, an open one does.
    before = refiner((original,))[0].vectors
    layers[0].values.weight.data[:2] += 1  # head 0 of layer 0
    assert torch.equal(refiner((original,))[0].vectors, before)
    layers[0].values.weight.data[2:4] += 1
    assert not torch.allclose(refiner((original,))[0].vectors, before)


def test_the_penalty_counts_the_open_heads_of_all_layers_and_views():
    refiner = built(SelfAttentionRefiner(None, 2, 3, gates=HeadGates(start=1.0)), (6, 4))
    odds = [p for name, p in refiner.named_parameters() if name.endswith("gates.weight")]
    assert [len(of_layer) for of_layer in odds] == [2] * 6
    total = sum(sigmoid(10 * odd.item() - 0.33 * np.log(0.1 / 1.1)) for of_layer in odds for odd in of_layer)
    close(refiner.penalty(), total)
    close(Refiners([refiner, LinearRefiner()]).penalty(), total)
    refiner.penalty().backward()
    assert all((of_layer.grad > 0).all() for of_layer in odds)  # descending closes them
    assert built(SelfAttentionRefiner(None, 2), (6,)).penalty() is None
    assert Refiners([LinearRefiner()]).penalty() is None


@pytest.mark.parametrize("kind", [SelfAttentionRefiner, TransformerRefiner])
def test_without_closed_heads_the_regions_are_the_same(kind: type[SelfAttentionRefiner]):
    """Of two views and two layers, with a bias of each head and offset, whose rows go with their heads."""
    refiner = built(kind(8, 4, 2, positions=RelativeBias(2), gates=HeadGates()), (6, 5))
    odds = ([-9.0, 0.3, -9.0, 9.0], [9.0, 9.0, 9.0, 9.0], [-9.0, -9.0, -9.0, -9.0], [9.0, -9.0, -9.0, -9.0])
    layers = [layer for of_view in refiner.self_attentions() for layer in of_view]
    for layer, of_layer in zip(layers, odds, strict=True):
        layer.gates.weight.data.copy_(torch.tensor(of_layer) / layer.gates.speed)
    views = random_views((6, 5), ((2, 3), (3, 4)))
    before = [view.vectors.detach() for view in refiner(views)]
    refiner.train()  # the gates that count are those of evaluation
    counts = remove_closed_heads(Refiners([refiner]))
    refiner.eval()
    where = "refiners.0.views.{}.layers.attend.{}"
    expected = {(0, 0): (2, 4), (0, 1): (4, 4), (1, 0): (0, 4), (1, 1): (1, 4)}
    assert counts == {where.format(*place): count for place, count in expected.items()}
    assert refiner.spec["init_args"]["kept_heads"] == [[[1, 3], [0, 1, 2, 3]], [[0], [0]]]
    assert layers[0].queries.weight.shape == layers[0].join.weight.T.shape == (4, 8)
    again = built(make_part(refiner.spec, Refiner), (6, 5))
    again.load_state_dict(refiner.state_dict())
    for smaller in (refiner, again):
        for view, old in zip(smaller(views), before, strict=True):
            close(view.vectors, old)
    assert refiner.penalty() is None


@pytest.mark.parametrize("kept", [[[[0], [1]]], [[[4]]], [[[]]]])
def test_heads_that_are_not_there_cannot_be_kept(kept: list[list[list[int]]]):
    with pytest.raises(UserError, match=r"kept_heads .*4 heads"):
        SelfAttentionRefiner(8, 4, 1, kept_heads=kept).build((6,))


def test_a_grid_larger_than_the_table_is_refused():
    refiner = built(SelfAttentionRefiner(positions=LearnedPositions(8, 2), heads=2), (6,))
    with pytest.raises(UserError, match=re.escape("has 2 cols, but the grid has 3: raise cols")):
        refiner(random_views((6,), ((2, 3),)))
