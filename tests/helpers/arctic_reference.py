"""The authors' model in NumPy, with their names and (in, out) matrices: slow and simple, and analytic, so that a
complex step gives exact derivatives (no absolute values, no maxima except ReLU).
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from caption.models.importers.arctic import Options, array_shapes

Array = np.ndarray
Params = dict[str, Array]


class Result(NamedTuple):
    log_probs: Array
    """(B, T, V) by their ids: 0 = end, 1 = unknown."""
    alphas: Array
    """(B, T, L)"""
    betas: Array
    """(B, T), 1 without the selector."""


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    powers = np.exp(x)
    return powers / powers.sum(-1, keepdims=True)


def relu(x: Array) -> Array:
    return np.where(x.real > 0, x, 0)


def affine(p: Params, name: str, x: Array) -> Array:
    return x @ p[f"{name}_W"] + p[f"{name}_b"]


def run(
    p: Params, options: dict[str, Any], regions: Array, words: Array, noise: float | None = None
) -> Result:
    """Teacher forcing.

    Args:
        p: the authors' arrays.
        options: the authors' options.
        regions: (B, L, D).
        words: (B, T) ids to predict; the inputs are zeros first, then these shifted by one.
        noise: the dropout masks; None = as in testing, 0.5 with `use_dropout`.
    """
    noise = (0.5 if options["use_dropout"] else 1.0) if noise is None else noise
    temperature = options.get("temperature", 1.0) if options["attn_type"] == "stochastic" else 1.0
    mean = regions.mean(1)
    for layer in range(1, options["n_layers_init"]):
        mean = relu(affine(p, f"ff_init_{layer}", mean)) * noise
    h = np.tanh(affine(p, "ff_state", mean))
    c = np.tanh(affine(p, "ff_memory", mean))
    projected = regions @ p["decoder_Wc_att"] + p["decoder_b_att"]
    for layer in range(1, options["n_layers_att"]):
        projected = np.tanh(projected @ p[f"decoder_W_att_{layer}"] + p[f"decoder_b_att_{layer}"])
    steps = []
    for t in range(words.shape[1]):
        embedded = np.zeros((len(words), options["dim_word"])) if t == 0 else p["Wemb"][words[:, t - 1]]
        joined = np.tanh(projected + (h @ p["decoder_Wd_att"])[:, None])
        scores = (joined @ p["decoder_U_att"])[..., 0] + p["decoder_c_tt"]
        alpha = softmax(temperature * scores)
        z = (alpha[..., None] * regions).sum(1)
        beta = np.ones(len(words))
        if options["selector"]:
            beta = sigmoid((h @ p["decoder_W_sel"])[:, 0] + p["decoder_b_sel"])
            z = beta[:, None] * z
        gates = embedded @ p["decoder_W"] + h @ p["decoder_U"] + z @ p["decoder_Wc"] + p["decoder_b"]
        i, f, o, g = np.split(gates, 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        logit = affine(p, "ff_logit_lstm", h * noise)
        if options["prev2out"]:
            logit = logit + embedded
        if options["ctx2out"]:
            logit = logit + affine(p, "ff_logit_ctx", z)
        log_prob = np.log(softmax(affine(p, "ff_logit", np.tanh(logit) * noise)))
        steps.append((log_prob, alpha, beta))
    return Result(*(np.stack(field, 1) for field in zip(*steps, strict=True)))


def loss(p: Params, options: dict[str, Any], regions: Array, words: Array) -> Any:
    """Summed over a caption, mean over captions; the doubly stochastic term summed over captions, mean over regions."""
    result = run(p, options, regions, words)
    nll = -np.take_along_axis(result.log_probs, words[..., None], 2).sum((1, 2)).mean()
    return nll + ((1 - result.alphas.sum(1)) ** 2).sum(0).mean()


def parameters(options: dict[str, Any], seed: int = 0) -> Params:
    """Large random arrays."""
    named = Options(**{field.name: options[field.name] for field in fields(Options) if field.name in options})
    random = np.random.default_rng(seed)
    return {name: np.asarray(random.normal(size=shape)) for name, shape in array_shapes(named).items()}
