"""EfficientNet-Lite computes what the port computes, and its weights find their places."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from caption.encoders import EfficientNetLite, TorchvisionEncoder
from caption.encoders.efficientnet_lite import efficientnet_lite
from caption.errors import CheckpointError, UserError

STAGES = [
    *((3, 1, 1, 16), (3, 2, 2, 24), (5, 2, 2, 40), (3, 2, 3, 80)),
    *((5, 1, 3, 112), (5, 2, 4, 192), (3, 1, 1, 320)),
]
"""Kernel, stride, blocks and output channels of Lite0's stages (Tan and Le 2019, Table 1)."""
BLOCKS = [
    (kernel, stride if block == 0 else 1, output)
    for kernel, stride, blocks, output in STAGES
    for block in range(blocks)
]


def random_port() -> dict[str, Tensor]:
    """Random weights of Lite0 under the names of the port."""
    generator = torch.Generator().manual_seed(0)
    state: dict[str, Tensor] = {}

    def convolution(name: str, *shape: int) -> None:
        state[f"{name}.weight"] = (
            torch.randn(shape, generator=generator) * (2 / (shape[1] * shape[2] ** 2)) ** 0.5
        )

    def norm(name: str, size: int) -> None:
        for tensor in ("weight", "running_var"):
            state[f"{name}.{tensor}"] = 0.5 + torch.rand(size, generator=generator)
        for tensor in ("bias", "running_mean"):
            state[f"{name}.{tensor}"] = torch.randn(size, generator=generator) * 0.3

    convolution("_conv_stem", 32, 3, 3, 3)
    norm("_bn0", 32)
    inputs = 32
    for block, (kernel, _, output) in enumerate(BLOCKS):
        name, width = f"_blocks.{block}", inputs * (6 if block else 1)
        if block:
            convolution(f"{name}._expand_conv", width, inputs, 1, 1)
            norm(f"{name}._bn0", width)
        convolution(f"{name}._depthwise_conv", width, 1, kernel, kernel)
        norm(f"{name}._bn1", width)
        convolution(f"{name}._project_conv", output, width, 1, 1)
        norm(f"{name}._bn2", output)
        inputs = output
    convolution("_conv_head", 1280, 320, 1, 1)
    norm("_bn1", 1280)
    state["_fc.weight"] = torch.randn(1000, 1280, generator=generator)
    state["_fc.bias"] = torch.randn(1000, generator=generator)
    return state


def port(state: dict[str, Tensor], x: Tensor) -> Tensor:
    """EfficientNet-Lite0 written out with the port's names: "same" padding of TensorFlow, ReLU6."""

    def convolution(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        kernel, size = weight.shape[-1], x.shape[-1]
        padding = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        x = functional.pad(x, [padding // 2, padding - padding // 2] * 2)  # the odd pixel is behind
        return functional.conv2d(x, weight, stride=stride, groups=x.shape[1] // weight.shape[1])

    def norm(name: str, x: Tensor) -> Tensor:
        mean, variance, weight, bias = (
            state[f"{name}.{tensor}"] for tensor in ("running_mean", "running_var", "weight", "bias")
        )
        return functional.batch_norm(x, mean, variance, weight, bias, eps=1e-3)

    x = functional.relu6(norm("_bn0", convolution("_conv_stem", x, 2)))
    for block, (_, stride, _) in enumerate(BLOCKS):
        name, y = f"_blocks.{block}", x
        if block:
            y = functional.relu6(norm(f"{name}._bn0", convolution(f"{name}._expand_conv", y)))
        y = functional.relu6(norm(f"{name}._bn1", convolution(f"{name}._depthwise_conv", y, stride)))
        y = norm(f"{name}._bn2", convolution(f"{name}._project_conv", y))
        x = x + y if x.shape == y.shape else y
    return functional.relu6(norm("_bn1", convolution("_conv_head", x)))


def test_it_computes_what_the_port_computes(tmp_path: Path):
    """At sizes of 32 n + 1, where TensorFlow's padding is symmetric."""
    state, size = random_port(), 97
    torch.save(state, tmp_path / "lite0.pth")
    encoder = EfficientNetLite("efficientnet_lite0", weights=str(tmp_path / "lite0.pth")).eval()
    encoder.load_pretrained()
    images = torch.randint(
        0, 256, (1, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        expected = port(state, encoder.normalise(images))
        (regions,) = encoder(images)
    assert expected.std() > 0.1
    largest = float(expected.max())
    torch.testing.assert_close(
        regions.vectors, expected.flatten(2).transpose(1, 2), rtol=0, atol=1e-4 * largest
    )


@pytest.mark.parametrize("number", range(5))
def test_every_size_has_the_tensors_of_timms_model(number: int):
    timm = pytest.importorskip("timm")
    ours, theirs = (
        [tuple(tensor.shape) for tensor in model.state_dict().values()]
        for model in (
            efficientnet_lite(f"efficientnet_lite{number}"),
            timm.create_model(f"tf_efficientnet_lite{number}"),
        )
    )
    assert sorted(ours) == sorted(theirs)


def test_files_of_torchvisions_names_load_and_other_names_are_refused(tmp_path: Path):
    state, file = efficientnet_lite("efficientnet_lite0").state_dict(), tmp_path / "own.pth"
    torch.save(state, file)
    encoder = EfficientNetLite("efficientnet_lite0", weights=str(file))
    encoder.load_pretrained()
    assert torch.equal(encoder.trunk.state_dict()["features.8.0.weight"], state["features.8.0.weight"])
    for odd in ("_blocks.99._bn1.weight", "_blocks.0._gate.weight", "_swish.beta"):
        torch.save({**state, odd: torch.empty(0)}, file)
        with pytest.raises(CheckpointError, match=f"1 tensors too many, {odd}"):
            encoder.load_pretrained()
    with pytest.raises(UserError, match=r"named efficientnet_b2: choose one of efficientnet_lite0"):
        EfficientNetLite("efficientnet_b2")
    with pytest.raises(
        UserError, match="DEFAULT names no file; efficientnet_lite0 has weights in files only"
    ):
        EfficientNetLite("efficientnet_lite0", weights="DEFAULT").load_pretrained()


@pytest.mark.parametrize("layers", [["features.5", "features.8"], ["features.2.0.block.1", "features.0"]])
def test_stages_and_their_sizes_are_what_torchvision_cuts_off_and_measures(layers: list[str]):
    """By tracing, which takes longer."""
    encoder = EfficientNetLite("efficientnet_lite0", layers)
    assert encoder.region_sizes == TorchvisionEncoder.measure(encoder)
    whole = efficientnet_lite("efficientnet_lite0").eval()
    stages = EfficientNetLite.cut(whole, "efficientnet_lite0", layers)
    traced = TorchvisionEncoder.cut(whole, "efficientnet_lite0", layers)
    assert [*stages.state_dict()] == [*traced.state_dict()]
    named = [name for name, _ in stages.named_parameters()]
    assert named == [name for name, _ in traced.named_parameters()]
    images = torch.rand(1, 3, 65, 65, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        maps, expected = stages(images), traced(images)
    assert maps.keys() == expected.keys() == {*layers}
    assert all(torch.equal(maps[layer], expected[layer]) for layer in layers)
