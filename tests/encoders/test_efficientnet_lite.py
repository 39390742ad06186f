"""EfficientNet-Lite computes what timm's model computes, and weights of the port find their places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from caption.core.errors import CheckpointError, UserError
from caption.encoders import EfficientNetLite, TorchvisionEncoder
from caption.encoders.efficientnet_lite import efficientnet_lite


def port_names(blocks: int) -> Iterator[str]:
    """The names that the port gives to the tensors of a model of so many blocks, in the order of timm's model."""
    modules = ["_conv_stem", "_bn0"]
    for block in range(blocks):
        expansion = ["_expand_conv", "_bn0"] if block else []
        parts = [*expansion, "_depthwise_conv", "_bn1", "_project_conv", "_bn2"]
        modules += [f"_blocks.{block}.{part}" for part in parts]
    for module in (*modules, "_conv_head", "_bn1"):
        yield f"{module}.weight"
        if "_bn" in module:
            yield from (f"{module}.{tensor}" for tensor in ("bias", "running_mean", "running_var"))
    yield from ("_fc.weight", "_fc.bias")


@pytest.mark.parametrize("number", range(5))
def test_with_weights_of_the_port_it_computes_what_timms_model_computes(number: int, tmp_path: Path):
    """At a size of 32 n + 1, where TensorFlow's padding, which timm's model has, is symmetric."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model(f"tf_efficientnet_lite{number}").eval()
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            for spread in (layer.weight, layer.running_var):
                nn.init.uniform_(spread, 0.5, 1.5)
            for shift in (layer.bias, layer.running_mean):
                nn.init.normal_(shift, std=0.3)
    tensors = [tensor for name, tensor in model.state_dict().items() if "num_batches" not in name]
    names = port_names(sum(map(len, model.blocks)))
    torch.save(dict(zip(names, tensors, strict=True)), tmp_path / "lite.pth")
    weights = str(tmp_path / "lite.pth")
    encoder = EfficientNetLite(f"efficientnet_lite{number}", weights=weights).eval()
    encoder.load_pretrained()
    for each in (model, encoder):
        each.double()  # or rounding grows from layer to layer
    images = torch.randint(0, 256, (1, 3, 65, 65), dtype=torch.uint8)
    with torch.no_grad():
        expected = model.forward_features((images.double() - 127) / 128)
        (regions,) = encoder(images)
    assert expected.std() > 0.1
    expected = expected.flatten(2).mT
    torch.testing.assert_close(regions.vectors, expected, rtol=0, atol=1e-4 * float(expected.max()))


def test_files_of_torchvisions_names_load_and_names_that_the_port_lacks_are_refused(tmp_path: Path):
    state, file = efficientnet_lite("efficientnet_lite0").state_dict(), tmp_path / "own.pth"
    torch.save(state, file)
    encoder = EfficientNetLite("efficientnet_lite0", weights=str(file))
    encoder.load_pretrained()
    assert torch.equal(encoder.trunk.state_dict()["features.8.0.weight"], state["features.8.0.weight"])
    for odd in ("_blocks.99._bn1.weight", "_blocks.0._gate.weight", "_swish.beta"):
        port = {"_conv_stem.weight": state["features.0.0.weight"], odd: torch.empty(0)}
        torch.save(port, file)
        with pytest.raises(CheckpointError, match=odd):
            encoder.load_pretrained()
    with pytest.raises(UserError, match=r"efficientnet_b2.*efficientnet_lite0"):
        EfficientNetLite("efficientnet_b2")
    with pytest.raises(UserError, match=r"DEFAULT.*efficientnet_lite0"):
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
