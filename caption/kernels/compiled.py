"""The encoder's layers and, on a GPU, the decoder's step, compiled with torch.compile when they first run.

The decoder's loop over the words is not compiled, because it would be recompiled for every length of the longest
caption. On a CPU the step is not compiled either, because the tiles of `caption.kernels.additive_energies` are faster.
Compiled functions belong to a class: stored on a module, they would use that module's weights in its copies as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from caption.core.errors import UserError
from caption.core.tensor_tree import State
from caption.decoders.unroll import RecurrentDecoder
from caption.encoders.base import Encoder
from caption.kernels.exchange import plain_class


class CompiledEncoder(Encoder):
    """`Encoder` whose feature maps are compiled."""

    def feature_maps(self, images: Tensor) -> tuple[Tensor, ...]:
        return compiled(plain_class(type(self)).feature_maps)(self, images)


class CompiledStep(RecurrentDecoder):
    """`RecurrentDecoder` whose `advance` is compiled for any number of images and captions."""

    def advance(self, state: State, embedded: Tensor) -> tuple[State, tuple[Tensor, ...]]:
        if any(attention.maps._forward_hooks for attention in self.attentions.values()):
            return super().advance(state, embedded)  # code compiled without hooks would not run them
        # A copy, because a slice is recompiled for every shape of its base tensor.
        embedded = embedded.clone(memory_format=torch.contiguous_format)
        return compiled(plain_class(type(self)).advance, dynamic=True)(self, state, embedded)


@cache
def compiled(function: Callable[..., Any], dynamic: bool | None = None) -> Callable[..., Any]:
    """The compiled form of a function, compiled once."""
    return torch.compile(function, dynamic=dynamic)


def check_compiler(device: torch.device) -> None:
    """Raise a `UserError` if torch.compile lacks Triton on a GPU, or a C++ compiler on a CPU."""
    if device.type == "cuda":
        try:
            import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
        except ImportError as error:
            raise UserError(
                "compiling for a GPU needs Triton, which is not installed: install it, or train without --model.compile"
            ) from error
        return
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:  # its class differs between releases
        raise UserError(
            "compiling for a CPU needs a C++ compiler, and none was found: install one (such as g++), name it in the "
            "environment variable CXX, or train without --model.compile"
        ) from error
