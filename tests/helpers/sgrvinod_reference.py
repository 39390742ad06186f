"""The tutorial's DecoderWithAttention in NumPy, with its names: slow and simple, and analytic, for complex steps."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from helpers.arctic_reference import Array, Params, relu, sigmoid, softmax

from caption.models.importers.sgrvinod import tensor_shapes


class Result(NamedTuple):
    log_probs: Array
    """(T, V) by its ids."""
    alphas: Array
    """(T, L)"""
    betas: Array
    """(T, D)"""


def affine(p: Params, name: str, x: Array) -> Array:
    return p[f"{name}.weight"] @ x + p[f"{name}.bias"]


def cell(p: Params, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
    """torch.nn.LSTMCell."""
    name = "decode_step."
    gates = p[f"{name}weight_ih"] @ x + p[f"{name}bias_ih"] + p[f"{name}weight_hh"] @ h + p[f"{name}bias_hh"]
    i, f, g, o = np.split(gates, 4)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def run(p: Params, regions: Array, fed: list[int]) -> Result:
    """One caption: regions (L, D), the input ids."""
    mean = regions.mean(0)
    h, c = affine(p, "init_h", mean), affine(p, "init_c", mean)
    steps = []
    for word in fed:
        query = affine(p, "attention.decoder_att", h)
        joined = [relu(affine(p, "attention.encoder_att", a) + query) for a in regions]
        scores = [affine(p, "attention.full_att", x) for x in joined]
        alpha = softmax(np.concatenate(scores))
        gate = sigmoid(affine(p, "f_beta", h))
        z = gate * (alpha @ regions)
        h, c = cell(p, np.concatenate((p["embedding.weight"][word], z)), h, c)
        steps.append((np.log(softmax(affine(p, "fc", h))), alpha, gate))
    return Result(*(np.stack(field) for field in zip(*steps, strict=True)))


def loss(p: Params, regions: Array, captions: list[list[int]]) -> Any:
    """Mean over all words, and over captions and regions; each caption begins with <start> and ends with <end>."""
    nlls, shortfalls = [], []
    for image, caption in zip(regions, captions, strict=True):
        result = run(p, image, caption[:-1])
        nlls += [-result.log_probs[t, word] for t, word in enumerate(caption[1:])]
        shortfalls.append((1 - result.alphas.sum(0)) ** 2)
    return np.mean(nlls) + np.mean(shortfalls)


def parameters(seed: int = 0, **sizes: int) -> Params:
    """Large random weights."""
    random = np.random.default_rng(seed)
    return {name: random.normal(size=shape) for name, shape in tensor_shapes(sizes).items()}
