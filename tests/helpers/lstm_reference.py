"""Equations 1 to 7 of Xu et al. 2015 in NumPy: one caption, one region, one gate at a time, slow and simple."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from caption.decoders import ConstantState, DeepOutput, LSTMDecoder

Array = np.ndarray
START = 1


class Step(NamedTuple):
    logits: Array
    """(V,)"""
    weights: Array
    """(L,)"""
    gate: Array | None
    """(1,) or (D,)"""
    hidden: Array
    """(H,) h[t]"""
    cell: Array
    """(H,) c[t]"""


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def affine(weights: dict[str, Array], name: str, x: Array) -> Array:
    return weights[f"{name}.weight"] @ x + weights.get(f"{name}.bias", 0)


def unroll(decoder: LSTMDecoder, regions: Array, words: list[int]) -> list[Step]:
    """The steps of one caption: `regions` (L, D), `words` the input ids."""
    weights = {name: tensor.detach().double().numpy() for name, tensor in decoder.state_dict().items()}
    cell = initial(decoder, weights, "initial.cell", regions)
    hidden = initial(decoder, weights, "initial.hidden", regions)
    steps = []
    for word in words:
        embedded = weights["embed.weight"][word]
        if decoder.first_input == "zero" and word == START:
            embedded = np.zeros_like(embedded)
        alphas = attend(decoder, weights, regions, hidden)  # eqs. 4 and 5: with h[t-1]
        context = sum(alpha * region for alpha, region in zip(alphas, regions, strict=True))  # eq. 6
        beta = None
        if decoder.gate is not None:
            beta = sigmoid(affine(weights, "gate.project", hidden))  # with h[t-1]
            context = beta * context
        cell, hidden = lstm(weights, embedded, cell, hidden, context)
        logits = read_out(decoder, weights, embedded, hidden, context)
        steps.append(Step(logits, alphas, beta, hidden, cell))
    return steps


def initial(decoder: LSTMDecoder, weights: dict[str, Array], name: str, regions: Array) -> Array:
    if isinstance(decoder.initial, ConstantState):
        return weights[name]
    x = regions.mean(axis=0)
    for layer in sorted({key.rpartition(".")[0] for key in weights if key.startswith("initial.trunk")}):
        x = np.maximum(affine(weights, layer, x), 0)
    layers = sorted({key.rpartition(".")[0] for key in weights if key.startswith(name)})
    for layer in layers[:-1]:
        x = np.maximum(affine(weights, layer, x), 0)
    x = affine(weights, layers[-1], x)
    return np.tanh(x) if decoder.initial.activation == "tanh" else x


def attend(decoder: LSTMDecoder, weights: dict[str, Array], regions: Array, hidden: Array) -> Array:
    prefix = "attention.score"
    bend = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}[decoder.attention.score.activation]
    energies = []
    for region in regions:
        key = affine(weights, f"{prefix}.region", region)
        for layer in range(decoder.attention.score.layers - 1):
            key = bend(affine(weights, f"{prefix}.deeper.{layer}", key))
        inside = key + affine(weights, f"{prefix}.query", hidden)
        energies.append((weights[f"{prefix}.energy.weight"] @ bend(inside)).item())
    powers = np.exp(energies)
    return powers / powers.sum()


def lstm(
    weights: dict[str, Array], embedded: Array, cell: Array, hidden: Array, context: Array
) -> tuple[Array, Array]:
    size = len(hidden)
    pre = {}
    for place, gate in enumerate("ifog"):
        rows = slice(place * size, (place + 1) * size)
        from_word = weights["gates_from_word.weight"][rows] @ embedded + weights["gates_from_word.bias"][rows]
        from_hidden = weights["gates_from_state.weight"][rows, :size] @ hidden
        from_context = weights["gates_from_state.weight"][rows, size:] @ context
        pre[gate] = from_word + from_hidden + from_context
    i, f, o, g = sigmoid(pre["i"]), sigmoid(pre["f"]), sigmoid(pre["o"]), np.tanh(pre["g"])  # eq. 1
    cell = f * cell + i * g  # eq. 2
    return cell, o * np.tanh(cell)  # eq. 3


def read_out(
    decoder: LSTMDecoder, weights: dict[str, Array], embedded: Array, hidden: Array, context: Array
) -> Array:
    if not isinstance(decoder.readout, DeepOutput):
        return affine(weights, "readout.to_words", hidden)
    joined = affine(weights, "readout.from_hidden", hidden)
    if decoder.readout.previous_word:
        joined = joined + embedded
    if decoder.readout.context:
        joined = joined + affine(weights, "readout.from_context", context)
    if decoder.readout.activation == "tanh":
        joined = np.tanh(joined)
    return affine(weights, "readout.to_words", joined)  # eq. 7
