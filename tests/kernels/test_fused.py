"""The conditions under which the fused kernels are used."""

from __future__ import annotations

import sys
import types
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from caption.kernels import additive_energies
from caption.kernels.additive_energies import fused_for, fused_on

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def forget():
    """Devices are tested once per process."""
    fused_on.cache_clear()
    yield
    fused_on.cache_clear()


def module(monkeypatch: pytest.MonkeyPatch, kernel: Any) -> None:
    """A kernel in place of Triton's."""
    stand_in = types.SimpleNamespace(fused_energies=kernel)
    monkeypatch.setitem(sys.modules, "caption.kernels.additive_triton", stand_in)


def keys_on_a_gpu(dtype: torch.dtype = torch.float32) -> Any:
    """The attributes that `fused_for` reads."""
    return types.SimpleNamespace(is_cuda=True, dtype=dtype, device=torch.device("cpu"))


def test_a_kernel_that_runs_is_used(monkeypatch: pytest.MonkeyPatch):
    def kernel(*given: Any) -> Tensor:
        return torch.zeros(1, 1, 1)

    module(monkeypatch, kernel)
    assert fused_for(keys_on_a_gpu()) is kernel
    assert fused_for(keys_on_a_gpu(torch.bfloat16)) is kernel


def test_not_on_a_cpu_nor_in_double_precision_nor_for_a_compiler(monkeypatch: pytest.MonkeyPatch):
    module(monkeypatch, lambda *given: None)
    assert fused_for(torch.zeros(1, 1, 1)) is None
    assert fused_for(keys_on_a_gpu(torch.float64)) is None
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert fused_for(keys_on_a_gpu()) is None


def test_a_kernel_that_does_not_run_is_named_once_with_the_reason(monkeypatch: pytest.MonkeyPatch):
    def kernel(*given: Any) -> Tensor:
        raise RuntimeError("Failed to find C compiler.\nSee the manual.")

    module(monkeypatch, kernel)
    with pytest.warns(UserWarning, match=r"without its Triton kernel on cpu: Failed to find C compiler\.$"):
        assert fused_for(keys_on_a_gpu()) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fused_for(keys_on_a_gpu()) is None


def test_missing_triton_causes_no_warning(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "caption.kernels.additive_triton", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fused_for(keys_on_a_gpu()) is None


def test_a_failed_import_of_a_kernel_is_not_taken_for_a_missing_triton(monkeypatch: pytest.MonkeyPatch):
    def kernel(*given: Any) -> Tensor:
        raise ImportError("libcuda.so.1: cannot open shared object file")

    module(monkeypatch, kernel)
    with pytest.warns(UserWarning, match=r"libcuda\.so\.1"):
        assert fused_for(keys_on_a_gpu()) is None


def test_the_energies_are_those_of_the_kernel(monkeypatch: pytest.MonkeyPatch):
    query, keys, energy = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(4)
    given = []

    def kernel(*arguments: Any) -> str:
        given.extend(arguments)
        return "scores"

    monkeypatch.setattr(additive_energies, "fused_for", lambda keys: kernel)
    assert additive_energies.additive_energies(query, keys, energy, "relu") == "scores"
    assert all(a is b for a, b in zip(given, (query, keys, energy, "relu"), strict=True))


@GPU
def test_a_gpu_has_the_kernel():
    pytest.importorskip("triton")
    with torch.inference_mode():  # as in the first use of a model to caption a photo
        assert fused_for(torch.zeros(1, 1, 1, device="cuda")) is not None
    assert fused_for(torch.zeros(1, 1, 1, device="cuda", dtype=torch.float64)) is None
