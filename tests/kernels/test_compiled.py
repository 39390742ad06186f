"""Compiling: the same numbers, few compilations for any caption lengths, and unchanged names."""

from __future__ import annotations

import copy
import shutil
import sys
from collections.abc import Iterator
from functools import partial

import pytest
import torch
from helpers import mechanisms
from helpers.mechanisms import ATTENTIONS, DECODERS, OWN, OWN_DECODERS
from helpers.tiny_captioner import captioner
from helpers.tiny_views import one_row
from torch import Tensor
from torch._dynamo.utils import counters

from caption.attention import edit_maps
from caption.core.errors import UserError
from caption.decoders import ShowAttendAndTellDecoder
from caption.kernels import accelerate
from caption.kernels.compiled import CompiledEncoder, CompiledStep, compiled
from caption.kernels.exchange import exchange, plain_class, restore
from caption.kernels.packed_unroll import PackedUnroll

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
    compiled.cache_clear()


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
    exchange(decoder, CompiledStep)
    graphs = []
    for lengths, theirs in zip(BATCHES, expected, strict=True):
        for ours, their in zip(unroll(decoder, lengths), theirs, strict=True):
            torch.testing.assert_close(ours, their, rtol=1e-4, atol=1e-5)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] > 0
    # PyTorch specialises on sizes of 1, so one and several images and captions are separate cases.
    assert graphs[-1] <= 4, graphs
    assert graphs[-1] == graphs[2], graphs


@pytest.mark.nightly
@pytest.mark.usefixtures("_quick")
def test_search_finds_the_same_also_in_a_copy_and_with_edits():
    model = captioner()
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    names, expected = list(model.state_dict()), model.generate(model.encoder(images))
    accelerate(model, CPU, compile=True)
    restore(model.decoder)
    exchange(model.decoder, CompiledStep)
    views = model.encoder(images)
    found = model.generate(views)
    assert torch.equal(found.words, expected.words)
    torch.testing.assert_close(found.log_probs, expected.log_probs)
    assert list(model.state_dict()) == names

    zero = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in zero.parameters():
            parameter.zero_()
    assert (zero.generate(zero.encoder(images)).log_probs != found.log_probs).all()

    onto = torch.nn.functional.one_hot(torch.tensor(5), 64).float()
    with edit_maps(model.decoder, lambda weights, step, grid: onto if step == 1 else weights, [(8, 8)]):
        edited = model.generate(views)
    assert (edited.trace.weights[:, :, 1] == onto).all()
    assert not (edited.trace.weights[:, :, 0] == onto).all()
    assert torch.equal(model.generate(views).trace.weights, found.trace.weights)


def test_a_cpu_keeps_its_tiles_and_a_gpu_gets_a_compiled_step(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("caption.kernels.acceleration.check_compiler", lambda device: None)
    for device, kernel in (("cpu", PackedUnroll), ("cuda", CompiledStep)):
        model = captioner()
        accelerate(model, device, compile=True)
        assert isinstance(model.encoder, CompiledEncoder)
        assert isinstance(model.decoder, kernel)
        exchanged = [
            type(part) for part in model.decoder.modules() if plain_class(type(part)) is not type(part)
        ]
        assert (len(exchanged) > 1) == (device == "cpu")  # the compiler takes the plain parts


@pytest.mark.nightly
@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("name", [*ATTENTIONS, *OWN, *DECODERS, *OWN_DECODERS])
def test_a_step_is_one_graph_forward_and_backward(name: str):
    """Nothing in it asks for a number, which would break the graph."""
    model = mechanisms.captioner(mechanisms.decoder(name)).train()
    with torch.no_grad():
        views = model.encoder(torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8).double())
    state = model.decoder.start(model.project(views), 3)
    words = torch.randint(4, 8, (2, 3))
    log_probs, after = torch.compile(model.decoder.step, fullgraph=True)(state, words)
    (log_probs.sum() + after.trace.weights.square().sum()).backward()
    assert any(parameter.grad is not None for parameter in model.decoder.parameters())
    forget()


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_compiled_encoder_gives_the_same_regions():
    model = captioner()
    images = torch.randint(0, 256, (4, 3, 32, 32), dtype=torch.uint8)
    (expected,) = model.encoder(images)
    forget()
    accelerate(model, CPU, compile=True)
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
        with pytest.raises(UserError, match=rf"needs .*{named}.* without --model\.compile"):
            accelerate(captioner(), device, compile=True)
