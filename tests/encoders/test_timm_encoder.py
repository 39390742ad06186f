"""Any timm model as an encoder: convolutional or a Transformer, its layers as views, its weights."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import Tensor

from caption.core.errors import UserError
from caption.encoders import TimmEncoder

timm = pytest.importorskip("timm")


def noise(height: int = 64, width: int = 96, images: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (images, 3, height, width), dtype=torch.uint8, generator=generator)


def cut(name: str, layer: str | list[str] = "features", **arguments) -> TimmEncoder:
    torch.manual_seed(0)
    return TimmEncoder(name, layer, **arguments).eval()


@pytest.mark.parametrize(
    ("name", "size", "features"),
    [
        ("test_efficientnet", (64, 96), 256),
        ("test_resnet", (64, 96), 96),  # its output is its last stage
        ("test_vit2", (64, 96), 64),  # with a class token and a register
        ("test_vit_relpos", (160, 160), 96),  # with neither
        ("swin_tiny_patch4_window7_224", (64, 96), 768),  # its maps have the channels last
    ],
)
def test_the_grid_is_timms_own_output(name: str, size: tuple[int, int], features: int):
    torch.manual_seed(0)
    encoder, images = cut(name, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)), noise(*size)
    model = encoder.whole().eval()
    encoder.load_weights(model.state_dict(), "here")
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)))
    with torch.no_grad():
        expected = model.forward_features((images / 255 - mean) / std)
        (regions,) = encoder(images)
    if "vit" in name:
        expected = expected[:, model.num_prefix_tokens :]
    elif "swin" in name:
        expected = expected.flatten(1, 2)
    else:
        expected = expected.flatten(2).transpose(1, 2)
    torch.testing.assert_close(regions.vectors, expected)
    assert encoder.region_sizes == (regions.vectors.shape[-1],) == (features,)
    stride = 16 if "vit" in name else 32
    assert regions.grid == (size[0] // stride, size[1] // stride)
    # Only what the layer needs is kept.
    assert not any(part in name for name in encoder.state_dict() for part in ("classifier", "fc.", "head.fc"))


def test_the_normalisation_is_the_models_own_unless_given():
    pixels = torch.tensor([255, 0, 51], dtype=torch.uint8).view(1, 3, 1, 1)
    own = torch.tensor([(1 - 0.485) / 0.229, -0.456 / 0.224, (0.2 - 0.406) / 0.225])
    torch.testing.assert_close(cut("test_efficientnet").normalise(pixels).flatten(), own)


def test_several_layers_give_a_view_each_in_the_order_asked_for():
    names = cut("test_efficientnet", "blocks.1").state_dict()
    assert not any(name.startswith(("trunk.blocks.2", "trunk.conv_head", "trunk.bn2")) for name in names)
    layers = ["features", "blocks.3", "blocks.1"]
    together = cut("test_efficientnet", layers)
    assert together.region_sizes == (256, 48, 24)
    with torch.no_grad():
        views = together(noise(images=2))
    assert [view.grid for view in views] == [(2, 3), (4, 6), (16, 24)]
    for layer, view in zip(layers, views, strict=True):
        alone = cut("test_efficientnet", layer)
        alone.load_state_dict({name: together.state_dict()[name] for name in alone.state_dict()})
        with torch.no_grad():
            torch.testing.assert_close(view.vectors, alone(noise(images=2))[0].vectors)


def test_timms_own_weights_are_asked_for_by_the_models_name(monkeypatch: pytest.MonkeyPatch):
    encoder = cut("test_efficientnet", weights="timm")
    create, requested = timm.create_model, []

    def download(name: str, pretrained: bool = False, **arguments):
        if requested:
            raise ConnectionError("no route to host")
        requested.append((name, pretrained))
        return create(name, **arguments)

    monkeypatch.setattr(timm, "create_model", download)
    encoder.load_pretrained()
    assert requested == [("test_efficientnet", True)]
    with pytest.raises(UserError, match="no route to host"):
        encoder.load_pretrained()


def test_mistakes_are_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    for make, said in [
        (lambda: TimmEncoder("tf_efficientnet_light2"), "tf_efficientnet_light2; similar: tf_efficientnet"),
        (lambda: TimmEncoder("test_resnet", ["layer1", "layer9"]), "no layer layer9; its layers are act1"),
        (lambda: TimmEncoder("test_efficientnet", finetune_from="blocks.9"), "from module blocks.9 on"),
        (cut("test_resnet", weights="DEFAULT").load_pretrained, "DEFAULT is neither a file nor weights"),
        (lambda: cut("test_vit")(noise(60, 96)), "test_vit does not take images of 60x96 pixels"),
        (lambda: cut("test_vit_relpos")(noise(64, 96)), "does not take images of 64x96 pixels: .*160"),
    ]:
        with pytest.raises(UserError, match=said):
            make()
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match="pip install timm"):
        TimmEncoder("test_resnet")
