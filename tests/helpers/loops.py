"""Equations in NumPy, written as loops and sums of numbers, and the small cases on which mechanisms are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.testing import assert_allclose
from torch import Tensor, nn

from caption.attention import Attention, AttentionOutput, Query, QuerySizes
from caption.core.regions import Regions, Views

IMAGES, QUERIES, HIDDEN, WORD = 2, 2, 5, 3
REGION_SIZES = (4, 3)

Vector = np.ndarray


def randomise(module: nn.Module, seed: int = 0) -> None:
    """Every parameter at random, so that none is 0 and no term can be missed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.7)


def parameters(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}


def dot(x: Vector, y: Vector) -> float:
    assert len(x) == len(y)
    return float(sum(x[i] * y[i] for i in range(len(x))))


def linear(p: dict[str, np.ndarray], name: str, x: Vector) -> Vector:
    """W x, + b if there is one."""
    weight, bias = p[f"{name}.weight"], p.get(f"{name}.bias")
    return np.array(
        [dot(weight[i], x) + (0.0 if bias is None else float(bias[i])) for i in range(len(weight))]
    )


def softmax(scores: Sequence[float], real: Sequence[bool] | None = None) -> Vector:
    """exp e_i / Σ_j exp e_j over the real ones; 0 elsewhere."""
    real = [True] * len(scores) if real is None else real
    total = sum(np.exp(e) for e, is_real in zip(scores, real, strict=True) if is_real)
    return np.array([np.exp(e) / total if is_real else 0.0 for e, is_real in zip(scores, real, strict=True)])


def weighted(weights: Sequence[float], vectors: Sequence[Vector]) -> Vector:
    """Σ_i w_i x_i."""
    total = np.zeros(len(vectors[0]))
    for weight, vector in zip(weights, vectors, strict=True):
        total = total + weight * vector
    return total


def additive(p: dict[str, np.ndarray], name: str, a: Vector, h: Vector) -> float:
    """v · tanh(U a + b + W h), with the weights `name` (Bahdanau et al. 2015, appendix A.1.2)."""
    compared = np.tanh(linear(p, f"{name}.region", a) + linear(p, f"{name}.query", h))
    return dot(p[f"{name}.energy.weight"][0], compared)


def bins(grid: tuple[int, int], n: int, real: Sequence[bool]) -> list[list[int]]:
    """The real cells of bin (i, j) of n by n: rows from ⌊i · rows / n⌋ to ⌈(i + 1) · rows / n⌉, and columns likewise
    (He et al. 2015, section 2.2)."""
    spans = [
        [range(int(np.floor(i * side / n)), int(np.ceil((i + 1) * side / n))) for i in range(n)]
        for side in grid
    ]
    return [
        [row * grid[1] + col for row in rows for col in cols if real[row * grid[1] + col]]
        for rows in spans[0]
        for cols in spans[1]
    ]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def lstm(gates: Vector, cell: Vector) -> tuple[Vector, Vector]:
    """c' = σ(f) c + σ(i) tanh(g), h' = σ(o) tanh(c'); gates in the order i, f, o, g."""
    size = len(cell)
    after = np.array(
        [
            sigmoid(gates[size + n]) * cell[n] + sigmoid(gates[n]) * np.tanh(gates[3 * size + n])
            for n in range(size)
        ]
    )
    return np.array([sigmoid(gates[2 * size + n]) * np.tanh(after[n]) for n in range(size)]), after


class Case(NamedTuple):
    """One image and one query of a run."""

    regions: np.ndarray
    """(L, D) of the first view."""
    real: np.ndarray
    """(L,) its mask."""
    others: list[tuple[np.ndarray, np.ndarray]]
    """Regions and mask of the other views."""
    hidden: list[Vector]
    """The query's h at each step."""
    cell: list[Vector]
    word: list[Vector]
    previous: list[Vector]
    weights: list[np.ndarray]
    """The summary at each step."""
    maps: list[dict[str, np.ndarray]]
    """All maps at each step, by name."""
    context: list[np.ndarray]


class Run(NamedTuple):
    """A mechanism asked for some steps."""

    attention: Attention
    views: Views
    queries: list[Query]
    memory: Any
    outputs: list[AttentionOutput]

    @property
    def p(self) -> dict[str, np.ndarray]:
        return parameters(self.attention)

    def cases(self) -> Iterator[Case]:
        for b in range(IMAGES):
            masked = [
                (
                    view.vectors[b].numpy(),
                    np.ones(view.vectors.shape[1], bool) if view.mask is None else view.mask[b].numpy(),
                )
                for view in self.views
            ]
            for k in range(QUERIES):
                fields = [
                    [getattr(query, name)[b, k].numpy() for query in self.queries] for name in Query._fields
                ]
                yield Case(
                    *masked[0],
                    masked[1:],
                    *fields,
                    [output.weights[b, k].detach().numpy() for output in self.outputs],
                    [
                        {}
                        if isinstance(output.maps, Tensor)
                        else {
                            name: tensor[b, k].detach().numpy()
                            for name, tensor in output.maps._asdict().items()
                        }
                        for output in self.outputs
                    ],
                    [output.context[b, k].detach().numpy() for output in self.outputs],
                )


def random_views(grids: Sequence[tuple[int, int]], masked: bool = True, seed: int = 1) -> Views:
    """In double precision; with `masked`, the first image lacks its second region."""
    generator = torch.Generator().manual_seed(seed)
    views = []
    for size, (rows, cols) in zip(REGION_SIZES, grids, strict=False):
        mask = torch.ones(IMAGES, rows * cols, dtype=torch.bool)
        mask[0, 1] = False
        vectors = torch.randn(IMAGES, rows * cols, size, generator=generator, dtype=torch.float64)
        views.append(Regions(vectors, (rows, cols), mask if masked else None))
    return tuple(views)


def random_queries(steps: int, seed: int = 2) -> list[Query]:
    generator = torch.Generator().manual_seed(seed)
    sizes = (HIDDEN, HIDDEN, WORD, HIDDEN)
    return [
        Query(
            *(torch.randn(IMAGES, QUERIES, size, generator=generator, dtype=torch.float64) for size in sizes)
        )
        for _ in range(steps)
    ]


def run(
    attention: Attention,
    steps: int = 1,
    grids: Sequence[tuple[int, int]] = ((2, 3),),
    masked: bool = True,
    views: Views | None = None,
) -> Run:
    """A mechanism with random weights, in evaluation, asked by two queries of each of two images."""
    views = random_views(grids, masked) if views is None else views
    attention.build(tuple(view.vectors.shape[-1] for view in views), QuerySizes(HIDDEN, WORD))
    attention.double().eval()
    randomise(attention)
    queries = random_queries(steps)
    memory = attention.project(views)
    state = attention.start(memory, QUERIES)
    outputs = []
    for query in queries:
        outputs.append(attention(query, memory, state))
        state = outputs[-1].state
    return Run(attention, views, queries, memory, outputs)


Transcription = Callable[[dict[str, np.ndarray], Case], tuple[Vector, dict[str, Any]]]
"""Parameters and a case -> the context of its first step, and the maps by name; a single map is called "weights"."""


def check_transcription(done: Run, transcription: Transcription) -> None:
    """Compare contexts and maps with a transcription, and the gradient by autograd, in a random direction of all
    inputs and parameters at once, with central differences of the transcription."""
    cases = list(done.cases())
    for case in cases:
        context, maps = transcription(done.p, case)
        close(case.context[0], context)
        for name, expected in maps.items():
            close(case.weights[0] if name == "weights" else case.maps[0][name], expected)
        assert set(case.maps[0]) <= set(maps)

    generator = np.random.default_rng(0)
    into = generator.standard_normal((IMAGES, QUERIES, len(cases[0].context[0])))
    vectors = [view.vectors.clone().requires_grad_() for view in done.views]
    hidden = done.queries[0].hidden.clone().requires_grad_()
    views = tuple(view._replace(vectors=own) for view, own in zip(done.views, vectors, strict=True))
    memory = done.attention.project(views)
    query = done.queries[0]._replace(hidden=hidden)
    context = done.attention(query, memory, done.attention.start(memory, QUERIES)).context
    leaves = [hidden, *vectors, *done.attention.parameters()]
    gradients = torch.autograd.grad((context * torch.from_numpy(into)).sum(), leaves, materialize_grads=True)
    steps = [generator.standard_normal(leaf.shape) for leaf in leaves]
    slope = sum(
        float((gradient.numpy() * step).sum()) for gradient, step in zip(gradients, steps, strict=True)
    )

    def value(size: float) -> float:
        """Of into · z, `size` steps away."""
        of_hidden, *of_vectors = steps[: 1 + len(vectors)]
        p = {
            name: tensor + size * step
            for (name, tensor), step in zip(done.p.items(), steps[1 + len(vectors) :], strict=True)
        }
        total = 0.0
        for (b, k), case in zip(np.ndindex(IMAGES, QUERIES), cases, strict=True):
            others = [
                (regions + size * step[b], real)
                for (regions, real), step in zip(case.others, of_vectors[1:], strict=True)
            ]
            moved = case._replace(
                regions=case.regions + size * of_vectors[0][b],
                others=others,
                hidden=[case.hidden[0] + size * of_hidden[b, k]],
            )
            total += dot(into[b, k], transcription(p, moved)[0])
        return total

    assert_allclose(slope, (value(1e-5) - value(-1e-5)) / 2e-5, rtol=1e-5, atol=1e-7)


def close(actual: Any, expected: Any) -> None:
    actual = actual.detach().numpy() if isinstance(actual, Tensor) else actual
    assert_allclose(actual, np.asarray(expected), rtol=1e-9, atol=1e-12)
