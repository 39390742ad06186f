"""Scores beside their equations, as functions of the weights, the score's name in them, a region and a query."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from helpers.loops import Vector, additive, dot, linear, sigmoid

from caption import attention as library
from caption.attention import AdditiveScore, Score

Weights = dict[str, np.ndarray]
Equation = Callable[[Weights, str, Vector, Vector], float]


def relu(x: Vector) -> Vector:
    return np.maximum(x, 0)


def additive_with(bend: Callable[[Vector], Vector], layers: int = 1) -> Equation:
    """v · f(U a + b + W h) (Bahdanau et al. 2015, appendix A.1.2); two layers: f(U_1 (U a + b) + b_1) for U a + b."""

    def equation(p: Weights, name: str, a: Vector, h: Vector) -> float:
        key = linear(p, f"{name}.region", a)  # no activation after the first layer
        if layers == 2:
            key = bend(linear(p, f"{name}.deeper.0", key))
        return dot(p[f"{name}.energy.weight"][0], bend(key + linear(p, f"{name}.query", h)))

    return equation


def dot_product(p: Weights, name: str, a: Vector, h: Vector) -> float:
    return dot(linear(p, f"{name}.key", a), h)


def scaled_dot(p: Weights, name: str, a: Vector, h: Vector) -> float:
    """q · k / √A (Vaswani et al. 2017, eq. 1), A = 6."""
    return dot(linear(p, f"{name}.key", a), linear(p, f"{name}.query", h)) / np.sqrt(6)


def general(p: Weights, name: str, a: Vector, h: Vector) -> float:
    """aᵀ (W h + b) (Luong et al. 2015, section 3.1); b only where the score has one."""
    weight, bias = p[f"{name}.query.weight"], p.get(f"{name}.query.bias", np.zeros(len(a)))
    return sum(a[i] * (weight[i, j] * h[j]) for i in range(len(a)) for j in range(len(h))) + dot(a, bias)


def activated(bend: Callable[[float], float]) -> Equation:
    """f(aᵀ W h + b) (Ma et al. 2017, eq. 7), without b in Lu et al. 2016, eq. 3; times e^s with a learned strength."""

    def equation(p: Weights, name: str, a: Vector, h: Vector) -> float:
        strength = np.exp(p.get(f"{name}.log_strength", 0.0))
        return float(strength * bend(general(p, name, a, h) + float(p.get(f"{name}.offset", 0.0))))

    return equation


def cosine(p: Weights, name: str, a: Vector, h: Vector) -> float:
    """s · cos(q, k) (Graves et al. 2014, section 3.3.1); s = 1 without a learned strength."""
    q, k = linear(p, f"{name}.query", h), linear(p, f"{name}.key", a)
    return np.exp(p.get(f"{name}.log_strength", 0.0)) * dot(q, k) / np.sqrt(dot(q, q)) / np.sqrt(dot(k, k))


def mlp(p: Weights, name: str, a: Vector, h: Vector) -> float:
    """w · ReLU(W_2 ReLU(W_1 [h; a] + b_1) + b_2), with W_1 in two parts; one layer has no W_2."""
    x = linear(p, f"{name}.region", a) + linear(p, f"{name}.query", h)
    for layer in ("1", "3"):
        if f"{name}.layers.{layer}.weight" in p:
            x = linear(p, f"{name}.layers.{layer}", relu(x))
    return float(x[0])


def feed_forward(p: Weights, name: str, a: Vector, h: Vector) -> float:
    """q · tanh(W a + b), the learned query of Yang et al. 2016, eqs. 5, 6, 8 and 9, perhaps without b: no h."""
    return dot(p[f"{name}.query.weight"][0], np.tanh(linear(p, f"{name}.region", a)))


def learned_query(p: Weights, name: str, a: Vector, h: Vector) -> float:
    """q · a."""
    return dot(p[f"{name}.query.weight"][0], a)


def bounded_query(p: Weights, name: str, a: Vector, h: Vector) -> float:
    """tanh(q · a + b) (Raffel and Ellis 2015, section 1.1)."""
    return float(np.tanh(linear(p, f"{name}.query", a)[0]))


def concatenation(p: Weights, name: str, a: Vector, h: Vector) -> float:
    """w · [h; a]."""
    w = [*p[f"{name}.state.weight"][0], *p[f"{name}.query.weight"][0]]
    return dot(np.array(w), np.array([*h, *a]))


ABSENT = {
    "general": "query.bias",
    "tanh": "log_strength",
    "tanh without offset": "offset",
    "activated, relu": "log_strength",
    "activated, sigmoid": "log_strength",
    "cosine without strength": "log_strength",
    "feed-forward, without bias": "region.bias",
}
"""What a score must not have: the equations read it where it is."""

SCORES: dict[str, tuple[Callable[[], Score], Equation]] = {
    "additive": (lambda: AdditiveScore(6), additive),
    "additive, relu": (lambda: AdditiveScore(6, "relu"), additive_with(relu)),
    "additive, two layers": (lambda: AdditiveScore(6, layers=2), additive_with(np.tanh, 2)),
    "additive, relu, two layers": (lambda: AdditiveScore(6, "relu", 2), additive_with(relu, 2)),
    "dot": (library.DotScore, dot_product),
    "scaled dot": (lambda: library.ScaledDotScore(6), scaled_dot),
    "general": (library.GeneralScore, general),
    "biased general": (lambda: library.GeneralScore(bias=True), general),
    "tanh": (library.ActivatedGeneralScore, activated(np.tanh)),
    "tanh without offset": (lambda: library.ActivatedGeneralScore(offset=False), activated(np.tanh)),
    "tanh with strength": (lambda: library.ActivatedGeneralScore(strength=3.0), activated(np.tanh)),
    "activated, relu": (lambda: library.ActivatedGeneralScore("relu"), activated(relu)),
    "activated, sigmoid": (lambda: library.ActivatedGeneralScore("sigmoid"), activated(sigmoid)),
    "cosine": (lambda: library.CosineScore(6), cosine),
    "cosine without strength": (lambda: library.CosineScore(6, strength=None), cosine),
    "mlp": (lambda: library.MLPScore((6,)), mlp),
    "mlp, two layers": (lambda: library.MLPScore((6, 7)), mlp),
    "feed-forward, two layers": (lambda: library.FeedForwardScore(6), feed_forward),
    "feed-forward, without bias": (lambda: library.FeedForwardScore(6, bias=False), feed_forward),
    "feed-forward, one layer": (library.LearnedQueryScore, learned_query),
    "feed-forward, one layer with tanh": (library.BoundedLearnedQueryScore, bounded_query),
    "concatenation": (library.ConcatenationScore, concatenation),
}
