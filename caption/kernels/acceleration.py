"""The one call that makes a model faster on a processor or GPU: it exchanges modules for equal ones.

The rooms of the model are plain PyTorch. Faster forms are in this room, each with its reason and its gain, and each
equal to the plain one: log-probabilities, maps and gradients up to rounding, hooks and names of weights exactly.
`caption.load` and training call `accelerate`; exports, compilers and other devices take the plain model.
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
from caption.kernels.linear import OneDNNLinear, least_outputs
from caption.kernels.scaled_dot_product import FusedScaledDotProduct
from caption.kernels.unroll import JoinedUnroll

log = logging.getLogger(__name__)

NAMES = {
    FoldedEncoder: "folded and fused convolutions",
    OneDNNLinear: "products by oneDNN",
    TiledAdditiveScore: "additive scores in tiles",
    FusedScaledDotProduct: "fused self-attention",
    JoinedUnroll: "gradients of large weights once per batch",
    CompiledEncoder: "compiled encoder",
    CompiledStep: "compiled step",
}
"""What is exchanged, in words."""


def accelerate(model: nn.Module, device: torch.device | str | None = None, compile: bool = False) -> str:
    """Exchange what is faster on a device, in place. What was exchanged before is exchanged anew.

    Args:
        model: a captioner, or a module that contains one.
        device: on which it will run; None = that of its weights.
        compile: compile the encoder and, on a GPU, the decoder's step when they first run, which takes from seconds to
            minutes.

    Returns:
        what was exchanged, in words, such as "folded and fused convolutions (1), additive scores in tiles (1)".

    Raises:
        UserError: it is to be compiled, and a compiler is missing.
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
    """All modules, owners first, and the encoder or decoder that each is inside of."""
    yield module, owner
    inside = module if isinstance(module, (Encoder, RecurrentDecoder)) else owner
    for child in module.children():
        yield from _modules(child, inside)


def _compiled(module: nn.Module, device: str) -> type[nn.Module] | None:
    """The compiled form of an encoder, or on a GPU of a decoder."""
    if isinstance(module, Encoder):
        return CompiledEncoder
    return CompiledStep if isinstance(module, RecurrentDecoder) and device != "cpu" else None


def _kernel(module: nn.Module, owner: nn.Module | None, device: str) -> type[nn.Module] | None:
    """The faster form of a module on a kind of device; None if the plain one is as fast, or is of another class."""
    own = plain_class(type(module))
    if isinstance(module, Encoder):
        return FoldedEncoder if device == "cpu" else None
    if (
        own is nn.Linear and device == "cpu" and not isinstance(owner, Encoder)
    ):  # encoders are folded as a whole
        return OneDNNLinear if len(module.weight) >= least_outputs() else None  # type: ignore[arg-type]
    if own is AdditiveScore and device in ("cpu", "cuda"):
        return TiledAdditiveScore
    if own is ScaledDotProduct:
        return FusedScaledDotProduct
    return JoinedUnroll if isinstance(module, RecurrentDecoder) and device in ("cpu", "cuda") else None
