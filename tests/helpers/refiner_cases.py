"""Each refiner, small and with random weights, and views to refine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from helpers.loops import close, parameters, softmax

from caption.attention import HeadGates
from caption.core.regions import Regions, Views
from caption.encoders import (
    CBAMRefiner,
    ConcatenationRefiner,
    CrossAttentionRefiner,
    DualAttentionRefiner,
    FeaturePyramidRefiner,
    LearnedPositions,
    LinearRefiner,
    MetaEmbeddingRefiner,
    PlainSelfAttentionRefiner,
    Refiner,
    Refiners,
    RelativeBias,
    RelativeVectors,
    SelfAttentionRefiner,
    SinusoidalPositions,
    SqueezeExcitationRefiner,
    TransformerRefiner,
)
from caption.encoders.refiners.base import EachView

Grid = tuple[int, int]


class Case(NamedTuple):
    make: Callable[[], Refiner]
    sizes: tuple[int, ...]
    grids: tuple[Grid, ...]
    ordered: bool
    """Whether the result depends on a region's position."""


ONE, TWO = ((3, 4),), ((3, 4), (2, 2))

CASES = {
    "linear": Case(lambda: LinearRefiner(5, dropout=0), (6,), ONE, False),
    "self-attention": Case(lambda: SelfAttentionRefiner(8, 2, 2, dropout=0), (6,), ONE, False),
    "sinusoidal": Case(
        lambda: SelfAttentionRefiner(8, 2, positions=SinusoidalPositions(), dropout=0), (6,), ONE, True
    ),
    "learned": Case(
        lambda: SelfAttentionRefiner(None, 2, positions=LearnedPositions(8, 8), dropout=0), (6,), ONE, True
    ),
    "relative": Case(
        lambda: SelfAttentionRefiner(None, 2, 2, positions=RelativeBias(2), dropout=0), (6,), ONE, True
    ),
    "relative vectors": Case(
        lambda: SelfAttentionRefiner(None, 2, 2, positions=RelativeVectors(2), dropout=0), (6,), ONE, True
    ),
    "gated": Case(lambda: SelfAttentionRefiner(None, 3, 2, dropout=0, gates=HeadGates()), (6,), ONE, False),
    "transformer": Case(
        lambda: TransformerRefiner(8, 2, 2, 5, SinusoidalPositions(), dropout=0), (6,), ONE, True
    ),
    "squeeze": Case(lambda: SqueezeExcitationRefiner(2), (6,), ONE, False),
    "cbam": Case(lambda: CBAMRefiner(2, 3), (6,), ONE, True),
    "dual": Case(lambda: DualAttentionRefiner(2), (6,), ONE, False),
    "plain self-attention": Case(lambda: PlainSelfAttentionRefiner(), (6,), ONE, False),
    "two views": Case(lambda: SelfAttentionRefiner(None, 2, dropout=0), (6, 4), TWO, False),
    "cross-attention": Case(lambda: CrossAttentionRefiner(8, 2, 2, dropout=0), (6, 3), TWO, False),
    "feature pyramid": Case(lambda: FeaturePyramidRefiner(5), (6, 3), TWO, True),
    "meta-embedding": Case(lambda: MetaEmbeddingRefiner(5), (6, 3), TWO, True),
    "meta-embedding of one grid": Case(lambda: MetaEmbeddingRefiner(5), (6, 3), ((2, 2), (2, 2)), False),
    "concatenation": Case(lambda: ConcatenationRefiner(5), (6, 3), TWO, True),
    "chain": Case(
        lambda: Refiners([FeaturePyramidRefiner(5), CrossAttentionRefiner(None, 1, dropout=0)]),
        (6, 3),
        TWO,
        True,
    ),
}


def built(refiner: Refiner, sizes: Sequence[int]) -> Refiner:
    """A refiner with random weights in double precision."""
    torch.manual_seed(0)
    refiner.build(tuple(sizes))
    with torch.no_grad():
        for parameter in refiner.parameters():
            parameter.normal_(0, 0.6)
    return refiner.double().eval()


def case(name: str) -> Refiner:
    return built(CASES[name].make(), CASES[name].sizes)


def random_views(sizes: Sequence[int], grids: Sequence[Grid], masked: bool = False, seed: int = 0) -> Views:
    """Views of two images; with `masked`, different regions of each image and view are masked."""
    generator = torch.Generator().manual_seed(seed)
    views = []
    for number, (size, (rows, cols)) in enumerate(zip(sizes, grids, strict=True)):
        regions = rows * cols
        mask = torch.ones(2, regions, dtype=torch.bool)
        mask[0, -(regions // 2) :] = False
        mask[1, 0] = False
        mask = mask.roll(number, 0)
        vectors = torch.randn(2, regions, size, generator=generator, dtype=torch.float64)
        views.append(Regions(vectors, (rows, cols), mask if masked else None))
    return tuple(views)


def views_of(name: str, masked: bool = False) -> Views:
    return random_views(CASES[name].sizes, CASES[name].grids, masked)


def real(view: Regions, image: int) -> np.ndarray:
    """Indices of the regions that are not masked."""
    return np.arange(view.vectors.shape[1]) if view.mask is None else np.flatnonzero(view.mask[image].numpy())


def check_equation(
    refiner: Refiner,
    equation: Callable[..., np.ndarray],
    masked: bool = False,
    sizes: Sequence[int] = (6,),
    grids: Sequence[Grid] = ONE,
) -> None:
    """For each image, the real regions of the first view are refined to what `equation` makes of the weights and of
    the real regions (L, D) of each view."""
    views = random_views(sizes, grids, masked)
    (refined,) = built(refiner, sizes)(views)
    weights = parameters(refiner.views[0] if isinstance(refiner, EachView) else refiner)
    for image in range(2):
        each = (view.vectors[image, real(view, image)].numpy() for view in views)
        close(refined.vectors[image, real(views[0], image)], equation(weights, *each))


def affine(weights: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    """W x + b."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def layer_norm(weights: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    spread = np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    return weights[f"{name}.weight"] * centred / spread + weights[f"{name}.bias"]


def multi_head(
    weights: dict[str, np.ndarray],
    name: str,
    heads: int,
    asking: np.ndarray,
    read: np.ndarray,
    biases: np.ndarray | None = None,
    offsets: tuple[np.ndarray, np.ndarray] | None = None,
    gates: Sequence[float] | None = None,
) -> np.ndarray:
    """Head by head and region by region, for one image; `offsets` are the vectors (L, L', d) for keys and values."""
    q, k, v = (
        affine(weights, f"{name}.{part}", x)
        for part, x in (("queries", asking), ("keys", read), ("values", read))
    )
    d = q.shape[1] // heads
    joined = np.zeros_like(q)
    for m in range(heads):
        part = slice(m * d, (m + 1) * d)
        for i in range(len(q)):
            of_keys, of_values = (0 * k, 0 * v) if offsets is None else (offsets[0][i], offsets[1][i])
            of_keys, of_values = (x[:, :d] for x in (of_keys, of_values))
            scores = np.array([q[i, part] @ (k[j, part] + of_keys[j]) / d**0.5 for j in range(len(k))])
            if biases is not None:
                scores = scores + biases[m, i]
            weights_of_i = softmax(scores)
            joined[i, part] = sum(w * (v[j, part] + of_values[j]) for j, w in enumerate(weights_of_i))
        if gates is not None:
            joined[:, part] *= gates[m]
    return affine(weights, f"{name}.join", joined)
