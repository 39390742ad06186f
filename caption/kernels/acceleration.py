"""`accelerate` makes a model faster on a processor or GPU by exchanging modules for equal ones.

The packages of the model are plain PyTorch. This package has the faster forms, each with its reason and its gain, and
each equal to the plain form: log-probabilities, maps and gradients up to rounding, hooks and names of weights exactly.
`caption.load` and training call `accelerate`; exports, compilers and other devices use the plain model.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from caption.attention.scaled_dot_product import ScaledDotProduct
from caption.attention.scores.additive import AdditiveScore
from caption.decoders.unroll import RecurrentDecoder
from caption.encoders.base import Encoder
from caption.kernels.additive_energies import TiledAdditiveScore
from caption.kernels.compiled import CompiledEncoder, CompiledStep, check_compiler
from caption.kernels.encoder import FoldedEncoder
from caption.kernels.exchange import exchange, plain_class, restore
from caption.kernels.graphs import GraphedUnroll
from caption.kernels.linear import OneDNNLinear, least_outputs
from caption.kernels.packed_unroll import PackedUnroll
from caption.kernels.scaled_dot_product import FusedScaledDotProduct
from caption.kernels.unroll import JoinedUnroll

log = logging.getLogger(__name__)

NAMES = {
    FoldedEncoder: "folded and fused convolutions",
    OneDNNLinear: "products by oneDNN",
    TiledAdditiveScore: "additive scores in tiles",
    FusedScaledDotProduct: "fused self-attention",
    PackedUnroll: "steps of running captions only",
    JoinedUnroll: "gradients of large weights once per batch",
    GraphedUnroll: "unroll and step as CUDA graphs",
    CompiledEncoder: "compiled encoder",
    CompiledStep: "compiled step",
}
"""Descriptions of the faster forms."""


def accelerate(
    model: nn.Module,
    device: torch.device | str | None = None,
    compile: bool = False,
    graphs: bool = False,
) -> str:
    """Exchange modules for forms that are faster on a device, in place. Undoes an earlier exchange first.

    Args:
        model: a captioner, or a module that contains one.
        device: the device on which it will run; None = that of its weights.
        compile: compile the encoder and, on a GPU, the decoder's step when they first run, which takes from seconds to
            minutes.
        graphs: record the decoder's unroll and step as CUDA graphs, see `caption.kernels.graphs`. No GPU has tried it
            yet. Without effect on a CPU, and with `compile`.

    Returns:
        a description of the exchange, such as "folded and fused convolutions (1), additive scores in tiles (1)".

    Raises:
        UserError: `compile` is True and a compiler is missing.
    """
    weight = next(model.parameters(), None)
    device = torch.device(device or (weight.device if weight is not None else "cpu"))
    if compile:
        check_compiler(device)
    counts: Counter[str] = Counter()
    decelerate(model)
    for module, owner in _modules(model):
        kernel = _compiled(module, device.type) if compile else None
        kernel = kernel or _kernel(module, owner, device.type)
        if kernel is JoinedUnroll and graphs:
            kernel = GraphedUnroll
        if kernel is not None and not isinstance(owner, (CompiledEncoder, CompiledStep)):
            exchange(module, kernel)
            counts[NAMES[kernel]] += 1
    exchanged = ", ".join(f"{name} ({count})" for name, count in counts.items()) or "nothing"
    log.info("exchanged for faster forms on %s: %s", device, exchanged)
    return exchanged


def decelerate(model: nn.Module) -> None:
    """Undo `accelerate`."""
    for module in model.modules():
        restore(module)


@contextmanager
def plain(model: nn.Module) -> Iterator[None]:
    """Context in which a model is plain PyTorch, for exports and compilers."""
    before = {module: type(module) for module in model.modules()}
    decelerate(model)
    try:
        yield
    finally:
        for module, cls in before.items():
            module.__class__ = cls


def _modules(
    module: nn.Module, owner: nn.Module | None = None
) -> Iterator[tuple[nn.Module, nn.Module | None]]:
    """All modules, parents first, and the encoder or decoder that contains each."""
    yield module, owner
    owner = module if isinstance(module, (Encoder, RecurrentDecoder)) else owner
    for child in module.children():
        yield from _modules(child, owner)


def _compiled(module: nn.Module, device: str) -> type[nn.Module] | None:
    """The compiled form of an encoder or, on a GPU, of a decoder; None for other modules."""
    if isinstance(module, Encoder):
        return CompiledEncoder
    return CompiledStep if isinstance(module, RecurrentDecoder) and device != "cpu" else None


def _kernel(module: nn.Module, owner: nn.Module | None, device: str) -> type[nn.Module] | None:
    """The faster form of a module on a type of device; None if there is none."""
    cls = plain_class(type(module))
    if isinstance(module, Encoder):
        return FoldedEncoder if device == "cpu" else None
    # Encoders are folded as a whole.
    if cls is nn.Linear and device == "cpu" and not isinstance(owner, Encoder):
        return OneDNNLinear if len(module.weight) >= least_outputs() else None  # type: ignore[arg-type]
    if cls is AdditiveScore and device in ("cpu", "cuda"):
        return TiledAdditiveScore
    if cls is ScaledDotProduct:
        return FusedScaledDotProduct
    if isinstance(module, RecurrentDecoder):
        return {"cpu": PackedUnroll, "cuda": JoinedUnroll}.get(device)
    return None
