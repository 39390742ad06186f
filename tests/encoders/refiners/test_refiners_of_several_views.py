"""Cross-attention, the pyramid and meta-embeddings, against their equations in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from helpers.loops import close, parameters, softmax
from helpers.refiner_cases import affine, built, check_equation, layer_norm, multi_head, random_views, real

from caption.core.errors import UserError
from caption.encoders import (
    ConcatenationRefiner,
    CrossAttentionRefiner,
    FeaturePyramidRefiner,
    MetaEmbeddingRefiner,
)

MASKED = pytest.mark.parametrize("masked", [False, True])


@MASKED
@pytest.mark.parametrize("size", [None, 8])
def test_cross_attention(size: int | None, masked: bool):
    def equation(weights: dict[str, np.ndarray], a: np.ndarray, b: np.ndarray) -> np.ndarray:
        x = affine(weights, "enter", a) if size else a
        others = layer_norm(weights, "enter_other.1", affine(weights, "enter_other.0", b))
        for n in range(2):
            normed = layer_norm(weights, f"layers.norms.{n}", x)
            x = x + multi_head(weights, f"layers.attend.{n}", 2, normed, others)
        return layer_norm(weights, "layers.leave", x)

    check_equation(CrossAttentionRefiner(size, 2, 2), equation, masked, (6, 3), ((3, 4), (2, 2)))


@MASKED
@pytest.mark.parametrize("grids", [((4, 6), (2, 3), (2, 1)), ((3, 3), (3, 3), (1, 3))])
def test_the_pyramid(grids, masked: bool):
    refiner = built(FeaturePyramidRefiner(3), (4, 5, 2))
    original = random_views((4, 5, 2), grids, masked)
    refined = refiner(original)
    weights = parameters(refiner)
    for image in range(2):
        above = None
        for n in (2, 1, 0):
            rows, cols = grids[n]
            projected = affine(weights, f"lateral.{n}", original[n].vectors[image].numpy())
            merged = np.zeros((rows, cols, 3))
            for i in real(original[n], image):
                row, col = divmod(i, cols)
                merged[row, col] = projected[i]
                if above is not None:  # the cell of the coarser grid in which this one's centre lies
                    down, across = above.shape[0] / rows, above.shape[1] / cols
                    merged[row, col] += above[int((row + 0.5) * down), int((col + 0.5) * across)]
            above = merged
            padded = np.pad(merged, ((1, 1), (1, 1), (0, 0)))
            kernel, bias = weights[f"smooth.{n}.weight"], weights[f"smooth.{n}.bias"]
            smoothed = np.zeros_like(merged)
            for row, col in np.ndindex(rows, cols):
                window = padded[row : row + 3, col : col + 3].transpose(2, 0, 1)
                smoothed[row, col] = [(kernel[d] * window).sum() + bias[d] for d in range(3)]
            close(refined[n].vectors[image], smoothed.reshape(-1, 3))


def test_views_from_coarse_to_fine_are_refused():
    refiner = built(FeaturePyramidRefiner(4), (3, 6))
    with pytest.raises(UserError, match=r"2x2.*3x4.*`layer`"):
        refiner(random_views((3, 6), ((2, 2), (3, 4))))


def combined(weights: dict[str, np.ndarray], views: list[np.ndarray | None]) -> np.ndarray:
    """One region; None = the view has no region at this position."""
    present = [v for v, a in enumerate(views) if a is not None]
    projected = [affine(weights, f"project.{v}", views[v]) for v in present]
    shares = softmax(np.array([weights["score.weight"][0] @ p for p in projected]))
    return sum(share * p for share, p in zip(shares, projected, strict=True))


def check_joined(
    grids: Sequence[tuple[int, int]],
    others: Callable[[np.ndarray, np.ndarray], list[np.ndarray | None]],
    mask: list[bool],
) -> None:
    """Meta-embeddings of two views are combinations of the first and of what `others` makes of the second, given its
    vectors (L, D) and its mask."""
    refiner = built(MetaEmbeddingRefiner(5), (6, 3))
    first, second = random_views((6, 3), grids)
    second = second._replace(mask=None if all(mask) else torch.tensor([mask] * 2))
    (refined,) = refiner((first, second))
    for image in range(2):
        own = first.vectors[image].numpy()
        resampled = others(second.vectors[image].numpy(), np.array(mask))
        expected = [combined(parameters(refiner), [a, b]) for a, b in zip(own, resampled, strict=True)]
        close(refined.vectors[image], expected)


@pytest.mark.parametrize("mask", [[True] * 6, [True, False, True, True, False, True]])
def test_meta_embeddings_of_one_grid(mask: list[bool]):
    """A masked region takes no part."""
    check_joined(
        ((2, 3), (2, 3)),
        lambda b, real: [x if is_real else None for x, is_real in zip(b, real, strict=True)],
        mask,
    )


def test_a_coarser_view_is_interpolated():
    # The centres of four cells lie at 1/8, 3/8, 5/8 and 7/8 of the width, those of two at 1/4 and 3/4.
    left = (1, 0.75, 0.25, 0)
    check_joined(((1, 4), (1, 2)), lambda b, real: [x * b[0] + (1 - x) * b[1] for x in left], [True] * 2)
    # The last cell lies only in the masked region.
    check_joined(((1, 4), (1, 2)), lambda b, real: [b[0], b[0], b[0], None], [True, False])


def test_a_finer_view_is_averaged_over_the_cell():
    # A triangle as wide as two coarse cells, at the centres of the fine ones.
    triangle = np.array([1 - 1.5 / 4, 1 - 0.5 / 4, 1 - 0.5 / 4, 1 - 1.5 / 4])
    check_joined(((1, 1), (1, 4)), lambda b, real: [triangle / triangle.sum() @ b], [True] * 4)


@MASKED
def test_a_concatenation_has_no_weights(masked: bool):
    refiner = built(ConcatenationRefiner(5), (6, 3))
    first, second = random_views((6, 3), ((2, 3),) * 2, masked)
    (refined,) = refiner((first, second))
    for image in range(2):
        for i in range(6):
            joined = [
                np.where(view.mask is None or view.mask[image, i], view.vectors[image, i].numpy(), 0)
                for view in (first, second)
            ]
            close(refined.vectors[image, i], affine(parameters(refiner), "project", np.concatenate(joined)))


def test_a_hook_gets_the_weights_of_the_views_and_may_replace_them():
    refiner = built(MetaEmbeddingRefiner(5), (6, 3))
    original = random_views((6, 3), ((2, 2), (1, 1)))
    seen = []

    def first_only(module, inputs, shares):
        seen.append(shares)
        return torch.tensor([1.0, 0.0], dtype=torch.float64).expand_as(shares)

    with refiner.shares.register_forward_hook(first_only):
        refined = refiner(original)[0].vectors
    assert seen[0].shape == (2, 4, 2)
    torch.testing.assert_close(seen[0].sum(-1), torch.ones(2, 4, dtype=torch.float64))
    torch.testing.assert_close(refined, refiner.project[0](original[0].vectors))
