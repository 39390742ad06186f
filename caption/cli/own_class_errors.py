"""Errors inside classes of other packages, such as a user's attention mechanism: class, method and shapes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn

from caption.attention.base import Attention, AttentionOutput
from caption.data.readers.captions import CaptionReader

LIBRARIES = ("caption", "torch", "torchvision", "timm", "pytorch_lightning", "lightning_fabric")
SHAPES = 8
"""How many shapes a message names."""


def own_class_message(error: BaseException) -> str | None:
    """A sentence that names the class, the method and what it was given; None if no such class is involved."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    reason = " ".join(str(error).split()) or type(error).__name__
    for frame in reversed(frames):
        if (owner := _owner(frame)) is not None:
            method = f"{_name(owner)}.{frame.f_code.co_name}"
            given = [
                shape for name in _parameters(frame) for shape in _shapes(name, frame.f_locals.get(name))
            ]
            given_text = f" It was given {', '.join(given[:SHAPES])}." if given else ""
            return f"{method} failed: {reason}.{given_text} (--debug shows the traceback)"
    for frame in reversed(frames):
        for fault in _faults(frame):
            return f"{fault} ({reason}; --debug shows the traceback)"
    return None


def _is_own(value: Any) -> bool:
    library = type(value).__module__.partition(".")[0] in LIBRARIES
    return isinstance(value, (nn.Module, CaptionReader)) and not library


def _owner(frame: FrameType) -> Any:
    """The `self` of a frame, if it is of a class outside the libraries; None in the methods of `nn.Module`."""
    owner, module = frame.f_locals.get("self"), str(frame.f_globals.get("__name__"))
    return owner if _is_own(owner) and not module.startswith("torch.") else None


def _name(owner: object) -> str:
    return f"{type(owner).__module__}.{type(owner).__qualname__}"


def _parameters(frame: FrameType) -> tuple[str, ...]:
    """Names of a function's parameters, without `self`."""
    return frame.f_code.co_varnames[1 : frame.f_code.co_argcount]


def _shapes(name: str, value: Any) -> Iterator[str]:
    """The shapes of tensors in nested tuples, such as "query.hidden (25, 3, 128)"."""
    if isinstance(value, Tensor):
        yield f"{name} {tuple(value.shape)}"
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        for field in value._fields:
            yield from _shapes(f"{name}.{field}", getattr(value, field))
    elif isinstance(value, tuple) and not isinstance(value, torch.Size):
        for place, entry in enumerate(value):
            yield from _shapes(f"{name}[{place}]", entry)


def _faults(frame: FrameType) -> Iterator[str]:
    """How the output of an attention outside the libraries differs from what its `build` promised."""
    modules = frame.f_locals.get("self")
    attentions = [
        each
        for each in (modules.modules() if isinstance(modules, nn.Module) else ())
        if isinstance(each, Attention)
    ]
    for attention in filter(_is_own, attentions):
        if not hasattr(attention, "context_size"):
            yield f"{_name(attention)}.build must set context_size, the length of the context"
        for output in frame.f_locals.values():
            if isinstance(output, AttentionOutput):
                found = tuple(output.context.shape)
                if found[-1:] != (attention.context_size,):
                    yield (
                        f"{_name(attention)} read a context of shape {found}, but its context_size is "
                        f"{attention.context_size}: the shape must be (B, K, {attention.context_size})"
                    )
                if output.weights.dim() != 3:
                    yield (
                        f"{_name(attention)} has weights of shape {tuple(output.weights.shape)}: its maps, or their "
                        "summary, must be (B, K, L)"
                    )
