"""Compiling a captioner with torch.compile: the encoder's layers and, on a GPU, the decoder's step.

Parts are compiled separately and in place, so that parameters and checkpoints keep their names. The decoder's loop over
the words is not compiled, because it would be recompiled for every length of the longest caption. On a CPU the step is
not compiled either, because the tiles of `caption.kernels.additive_energies` are faster than the compiled code.
"""

from __future__ import annotations

import torch

from caption.captioner import Captioner
from caption.core.errors import UserError


def compile_captioner(captioner: Captioner, device: torch.device) -> None:
    """Compile a captioner when it first runs on `device`, which takes from seconds to minutes.

    Raises:
        UserError: a compiler is missing.
    """
    check_compiler(device)
    captioner.encoder.compiled = True
    if device.type != "cpu":
        captioner.decoder.compiled = True


def check_compiler(device: torch.device) -> None:
    """Raise a `UserError` if torch.compile lacks Triton on a GPU, or a C++ compiler on a CPU."""
    if device.type == "cuda":
        try:
            import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
        except ImportError as error:
            raise UserError(
                "compiling for a GPU takes Triton, which this installation of PyTorch lacks: install it, or train "
                "without --model.compile"
            ) from error
        return
    from torch._inductor.cpp_builder import get_cpp_compiler

    try:
        get_cpp_compiler()
    except Exception as error:  # its class differs between releases
        raise UserError(
            "compiling for a CPU takes a C++ compiler, and none is found: install one (g++, for instance), name yours "
            "in the environment variable CXX, or train without --model.compile"
        ) from error
