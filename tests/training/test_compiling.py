"""Compiling: the same numbers, few compilations for any caption lengths, and unchanged names."""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from helpers.tiny_captioner import captioner
from helpers.tiny_views import one_row
from torch import Tensor
from torch._dynamo.utils import counters

from caption.attention import edit_maps
from caption.core.errors import UserError
from caption.decoders import ShowAttendAndTellDecoder
from caption.decoders.unroll import compiled_advance
from caption.encoders.base import compiled_features
from caption.training.compiling import compile_captioner

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def _quick() -> Iterator[None]:
    """torch.compile without code generation; what one test has compiled, the others use."""
    forget()
    with pytest.MonkeyPatch.context() as patch, torch.fx.experimental._config.patch(use_duck_shape=False):
        patch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
        yield
    forget()


def forget() -> None:
    """The graphs that were compiled."""
    torch._dynamo.reset()
    counters.clear()
    compiled_advance.cache_clear()
    compiled_features.cache_clear()


def unroll(decoder: ShowAttendAndTellDecoder, lengths: list[list[int]]) -> list[Tensor]:
    """Logits and weights of random captions, and a gradient of each parameter."""
    steps = torch.tensor(lengths)
    generator = torch.Generator().manual_seed(0)
    # A view of a feature map, as encoders return it.
    regions = torch.randn(len(lengths), decoder.attention.context_size, 6, generator=generator).mT
    words = torch.randint(4, 8, (*steps.shape, int(steps.max())), generator=generator)
    unrolled = decoder(decoder.project(one_row(regions)), words, steps)
    loss = unrolled.logits.log_softmax(-1)[:, 1].sum() + unrolled.trace.weights.square().sum()
    gradients = torch.autograd.grad(loss, list(decoder.parameters()))
    return [unrolled.logits, unrolled.trace.weights, *gradients]


BATCHES = [[[3, 2], [2, 4]], [[5, 2], [4, 3], [2, 2]], [[1, 2], [3, 3]], [[6, 3], [4, 2], [5, 5]]]


@pytest.mark.nightly
@pytest.mark.usefixtures("_quick")
def test_the_compiled_step_gives_the_same_and_is_not_compiled_for_every_length():
    decoder = captioner().decoder
    assert isinstance(decoder, ShowAttendAndTellDecoder)
    expected = [unroll(decoder, lengths) for lengths in BATCHES]
    decoder.compiled = True
    compiled = []
    for lengths, theirs in zip(BATCHES, expected, strict=True):
        for ours, their in zip(unroll(decoder, lengths), theirs, strict=True):
            torch.testing.assert_close(ours, their, rtol=1e-4, atol=1e-5)
        compiled.append(counters["stats"]["unique_graphs"])
    assert compiled[0] > 0
    # PyTorch specialises on sizes of 1, so one and several images and captions are separate cases.
    assert compiled[-1] <= 4, compiled
    assert compiled[-1] == compiled[2], compiled


@pytest.mark.nightly
@pytest.mark.usefixtures("_quick")
def test_search_finds_the_same_also_in_a_copy_and_with_edits():
    model = captioner()
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    names, expected = list(model.state_dict()), model.generate(model.encoder(images))
    compile_captioner(model, CPU)
    model.decoder.compiled = True
    views = model.encoder(images)
    compiled = model.generate(views)
    assert torch.equal(compiled.words, expected.words)
    torch.testing.assert_close(compiled.log_probs, expected.log_probs)
    assert list(model.state_dict()) == names

    zero = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in zero.parameters():
            parameter.zero_()
    assert (zero.generate(zero.encoder(images)).log_probs != compiled.log_probs).all()

    onto = torch.nn.functional.one_hot(torch.tensor(5), 64).float()
    with edit_maps(model.decoder, lambda weights, step, grid: onto if step == 1 else weights, [(8, 8)]):
        edited = model.generate(views)
    assert (edited.trace.weights[:, :, 1] == onto).all()
    assert not (edited.trace.weights[:, :, 0] == onto).all()
    assert model.decoder.compiled
    assert torch.equal(model.generate(views).trace.weights, compiled.trace.weights)


def test_a_cpu_keeps_its_tiles_and_a_gpu_gets_a_compiled_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("caption.training.compiling.check_compiler", lambda device: None)
    with torch.fx.experimental._config.patch(use_duck_shape=True):
        for device, compiled in (("cpu", False), ("cuda", True)):
            model = captioner()
            compile_captioner(model, torch.device(device))
            assert model.encoder.compiled
            assert model.decoder.compiled == compiled


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_compiled_encoder_gives_the_same_regions():
    model = captioner()
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    (expected,) = model.encoder(images)
    forget()
    compile_captioner(model, CPU)
    (regions,) = model.encoder(images)
    assert counters["stats"]["unique_graphs"] == 1
    torch.testing.assert_close(regions.vectors, expected.vectors)
    assert regions.grid == expected.grid
    forget()


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch):
    def missing() -> str:
        raise RuntimeError("No working C++ compiler found")

    monkeypatch.setattr("torch._inductor.cpp_builder.get_cpp_compiler", missing)
    monkeypatch.setitem(sys.modules, "triton", None)
    for device, named in (("cpu", r"C\+\+ compiler"), ("cuda", "Triton")):
        with pytest.raises(UserError, match=rf"takes .*{named}.* without --model\.compile"):
            compile_captioner(captioner(), torch.device(device))
