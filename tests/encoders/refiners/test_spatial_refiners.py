"""The linear layer, squeeze-and-excitation, CBAM and dual attention, against their equations in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.loops import close, parameters, sigmoid, softmax
from helpers.refiner_cases import affine, built, check_equation, layer_norm, random_views, real

from caption.encoders import CBAMRefiner, DualAttentionRefiner, LinearRefiner, SqueezeExcitationRefiner

Weights = dict[str, np.ndarray]
MASKED = pytest.mark.parametrize("masked", [False, True])


def mlp(weights: dict[str, np.ndarray], name: str, z: np.ndarray) -> np.ndarray:
    return np.maximum(z @ weights[f"{name}.0.weight"].T, 0) @ weights[f"{name}.2.weight"].T


@MASKED
def test_linear(masked: bool):
    """ReLU(W LayerNorm(a) + b), with dropout in training alone."""
    refiner = LinearRefiner(4, dropout=1.0)

    def equation(weights: Weights, a: np.ndarray) -> np.ndarray:
        return np.maximum(affine(weights, "layers.1", layer_norm(weights, "layers.0", a)), 0)

    check_equation(refiner, equation, masked)
    assert refiner.region_sizes == (4,)
    assert not refiner.train()(random_views((6,), ((3, 4),)))[0].vectors.any()


@MASKED
def test_squeeze_and_excitation(masked: bool):
    def equation(weights: Weights, a: np.ndarray) -> np.ndarray:
        assert weights["excite.0.weight"].shape == (3, 6)
        return a * sigmoid(mlp(weights, "excite", sum(a) / len(a)))

    check_equation(SqueezeExcitationRefiner(2), equation, masked)
    # A reduction to less than one unit leaves one.
    least = parameters(built(SqueezeExcitationRefiner(16), (6,)).views[0])
    assert least["excite.0.weight"].shape == (1, 6)


@MASKED
@pytest.mark.parametrize("kernel", [1, 3])
def test_cbam(kernel: int, masked: bool):
    refiner = built(CBAMRefiner(2, kernel), (6,))
    rows, cols = 3, 4
    (original,) = random_views((6,), ((rows, cols),), masked)
    (refined,) = refiner((original,))
    weights = parameters(refiner.views[0])
    for image in range(2):
        a = original.vectors[image].numpy()
        present = real(original, image)
        c = sigmoid(
            mlp(weights, "channels", a[present].mean(0)) + mlp(weights, "channels", a[present].max(0))
        )
        a = a * c
        for i in present:
            total = weights["space.bias"][0]
            for j in present:
                down = j // cols - i // cols + kernel // 2
                across = j % cols - i % cols + kernel // 2
                if 0 <= down < kernel and 0 <= across < kernel:
                    w = weights["space.weight"][0, :, down, across]
                    total = total + w[0] * a[j].mean() + w[1] * a[j].max()
            close(refined.vectors[image, i], sigmoid(total) * a[i])


@MASKED
def test_dual_attention(masked: bool):
    def equation(weights: Weights, a: np.ndarray) -> np.ndarray:
        assert weights["queries.weight"].shape == (3, 6)
        b, c, v = (affine(weights, name, a) for name in ("queries", "keys", "values"))
        position, channel = np.zeros_like(a), np.zeros_like(a)
        for j in range(len(a)):
            s = softmax(np.array([b[j] @ c[i] for i in range(len(a))]))
            position[j] = weights["alpha"] * sum(s[i] * v[i] for i in range(len(a))) + a[j]
        for j in range(6):
            x = softmax(np.array([a[:, i] @ a[:, j] for i in range(6)]))
            channel[:, j] = weights["beta"] * sum(x[i] * a[:, i] for i in range(6)) + a[:, j]
        return position + channel

    check_equation(DualAttentionRefiner(2), equation, masked)


def test_dual_attention_starts_with_twice_the_regions():
    refiner = DualAttentionRefiner()
    refiner.build((6,))
    (view,) = random_views((6,), ((3, 4),))
    torch.testing.assert_close(refiner.double()((view,))[0].vectors, 2 * view.vectors)
