"""The blur of the published figures, against its steps in NumPy and numbers from scikit-image."""

from __future__ import annotations

import numpy as np
import pytest

from caption.visualize.gaussian import enlarged


def one_hot(rows: int, cols: int, row: int, col: int) -> np.ndarray:
    weights = np.zeros((rows, cols))
    weights[row, col] = 1
    return weights


def pyramid_expand(weights: np.ndarray) -> np.ndarray:
    """Enlarged by linear interpolation, then blurred by a Gaussian of 20 pixels, cut off at four deviations."""
    for axis in (0, 1):
        centres = np.arange(weights.shape[axis]) + 0.5
        pixels = (np.arange(16 * weights.shape[axis]) + 0.5) / 16
        weights = np.apply_along_axis(lambda line, c=centres, p=pixels: np.interp(p, c, line), axis, weights)
    kernel = np.exp(-(np.arange(-80, 81) ** 2) / (2 * 20**2))
    kernel /= kernel.sum()
    padded = np.pad(weights, 80, mode="symmetric")
    for axis in (0, 1):
        padded = np.apply_along_axis(np.convolve, axis, padded, kernel, mode="valid")
    return padded


@pytest.mark.parametrize(
    "weights",
    [
        *(one_hot(14, 14, 6, 7), one_hot(9, 9, 0, 0), one_hot(14, 14, 13, 5)),
        np.random.default_rng(0).dirichlet(np.full(63, 0.1)).reshape(7, 9),
    ],
    ids=["middle", "corner", "edge", "random"],
)
def test_it_is_the_enlarged_map_blurred(weights: np.ndarray):
    expected = pyramid_expand(weights)
    np.testing.assert_allclose(enlarged(weights), expected, atol=0.003 * expected.max())


def test_it_is_that_of_scikit_image():
    """Of `pyramid_expand(map, upscale=16, sigma=20)`, scikit-image 0.26, a row through the middle of the cell."""
    row = enlarged(one_hot(14, 14, 6, 7))[104]
    expected = [
        *(0.00000, 0.00000, 0.00007, 0.00096, 0.00720, 0.03002, 0.07009),
        *(0.09185, 0.06761, 0.02793, 0.00645, 0.00083, 0.00005, 0.00000),
    ]
    np.testing.assert_allclose(row[8::16], expected, atol=0.003 * max(expected))


def test_the_mean_stays_and_even_weights_too():
    weights = np.random.default_rng(1).dirichlet(np.ones(12), 5).reshape(5, 3, 4)
    np.testing.assert_allclose(enlarged(weights).mean((1, 2)), 1 / 12, rtol=1e-6)
    np.testing.assert_allclose(enlarged(np.full((2, 3), 0.25)), 0.25)
    assert enlarged(np.zeros((0, 3, 4))).shape == (0, 48, 64)
    np.testing.assert_allclose(enlarged(np.ones((1, 1))), np.ones((16, 16)))
