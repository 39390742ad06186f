"""Encoders without gradients: as in training, with the weights of the moment, and only where the graph is known."""

from __future__ import annotations

import copy
import gc
import threading
import weakref
from collections.abc import Callable

import pytest
import torch
from helpers import tiny_torchvision  # noqa: F401  (registers tiny_cnn)
from torch import Tensor, nn
from torch.nn import functional

from caption.core.regions import Views
from caption.encoders import (
    EfficientNetLite,
    Encoder,
    SeveralEncoders,
    SmallCNN,
    TimmEncoder,
    TorchvisionEncoder,
)
from caption.kernels import accelerate
from caption.kernels.convolution import fused_available
from caption.kernels.encoder import inference_form

pytestmark = pytest.mark.skipif(not fused_available(), reason="torch has no fused convolutions here")


class Functions(Encoder):
    """Functions in place of layers, a BatchNorm before a convolution, and a convolution whose input changes later."""

    fixed_graph = True

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(inputs, 4, 3, padding=1) for inputs in (3, 4))
        self.grouped, self.norm = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4)
        self.region_sizes = (8,)

    def normalise(self, images: Tensor) -> Tensor:
        return images / 255

    def features(self, images: Tensor) -> Tensor:
        maps = functional.relu(self.first(images), inplace=True)
        second = self.second(maps)
        grouped = self.grouped(self.norm(maps.mul_(2)))
        return torch.cat((maps, torch.relu(second + grouped)), 1)


ENCODERS: dict[str, Callable[[], Encoder]] = {
    "SmallCNN": lambda: SmallCNN((4, 8, 8), views=2),
    "EfficientNet-Lite": lambda: EfficientNetLite("efficientnet_lite0", ["features.1", "features.3"]),
    "ResNet": lambda: TorchvisionEncoder("resnet18", ["layer1", "layer2"], grid=(3, 3)),
    "functions": Functions,
    "squeezed and excited": lambda: TorchvisionEncoder("mobilenet_v3_small", "features.4"),
    "BatchNorm before convolutions": lambda: TorchvisionEncoder("tiny_cnn", "features"),
    "a layer inside of a chain": lambda: TorchvisionEncoder("resnet18", ["conv1", "bn1", "layer1"]),
    "several": lambda: SeveralEncoders([SmallCNN((4, 8)), TorchvisionEncoder("squeezenet1_1", "features.4")]),
    "timm's BatchNorm and convolution": lambda: TimmEncoder("tf_efficientnet_b0", "blocks.2"),
}


def made(make: Callable[[], Encoder]) -> Encoder:
    """An encoder in evaluation mode, whose BatchNorm layers do something."""
    torch.manual_seed(0)
    encoder = make()
    for layer in encoder.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean, std=0.2)
            for scale in (layer.running_var, layer.weight):
                nn.init.uniform_(scale, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.2)
    accelerate(encoder)
    return encoder.eval()


def pixels(count: int = 3, height: int = 64, width: int = 96) -> Tensor:
    return torch.randint(0, 256, (count, 3, height, width), generator=torch.Generator().manual_seed(1)).byte()


def as_trained(encoder: Encoder, images: Tensor) -> Views:
    """The regions by the layers one after the other."""
    with torch.enable_grad():
        return encoder(images)


def check(encoder: Encoder, images: Tensor | None = None) -> None:
    """Regions without gradients are those of the layers, to 1e-5 of the largest number."""
    images = pixels() if images is None else images
    with torch.no_grad():
        found = encoder(images)
    expected = as_trained(encoder, images)
    assert [view.grid for view in found] == [view.grid for view in expected]
    for view, other in zip(found, expected, strict=True):
        assert view.vectors.shape == other.vectors.shape
        assert (view.vectors - other.vectors).abs().max() <= 1e-5 * other.vectors.abs().max()


@pytest.fixture
def small() -> Encoder:
    return made(lambda: SmallCNN((4, 8, 8)))


@pytest.mark.parametrize("name", ENCODERS)
def test_regions_are_those_of_the_layers(name: str):
    if "timm" in name:
        pytest.importorskip("timm")
    encoder = made(ENCODERS[name])
    assert inference_form(encoder) is not None
    check(encoder)
    check(encoder, pixels(1, 97, 64))


def test_batch_norms_are_folded_and_activations_fused():
    encoder = made(ENCODERS["EfficientNet-Lite"])
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        encoder(pixels())
    called = {event.name for event in profile.events()}
    assert "mkldnn::_convolution_pointwise" in called
    assert not called & {"aten::conv2d", "aten::batch_norm", "aten::hardtanh_", "aten::relu6", "aten::relu_"}


CHANGES: dict[str, Callable[[nn.Sequential], object]] = {
    "behind autograd": lambda layers: layers[3].weight.data.copy_(layers[3].weight.data.flip(0)),
    "statistics": lambda layers: layers[1].running_mean.add_(1),
    "another parameter": lambda layers: setattr(layers[0], "weight", nn.Parameter(torch.ones(4, 5, 4, 4))),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_weights_count_at_once_and_copies_have_their_own(small: Encoder, change: str):
    check(small)
    other = copy.deepcopy(small)
    before = as_trained(small, pixels())[0].vectors.detach()
    CHANGES[change](other.layers)
    check(other)
    assert not torch.allclose(before, as_trained(other, pixels())[0].vectors, rtol=1e-3)
    check(small)
    assert torch.equal(before, as_trained(small, pixels())[0].vectors)
    assert small.state_dict().keys() == SmallCNN((4, 8, 8)).state_dict().keys()


def test_weights_that_are_no_numbers_are_not_hidden(small: Encoder):
    check(small)
    with torch.no_grad():
        small.layers[3].weight[0, 0, 0, 0] = torch.nan
        assert small(pixels())[0].vectors.isnan().any()


def test_hooks_are_called(small: Encoder):
    check(small)
    seen: list[Tensor] = []
    hook = small.layers[1].register_forward_hook(lambda layer, inputs, output: seen.append(output))
    with torch.no_grad():
        small(pixels())
    assert seen
    hook.remove()
    assert inference_form(small) is not None


def test_a_layer_in_training_mode_stays_in_it(small: Encoder):
    norm = small.layers[1].train()
    before = norm.running_mean.clone()
    with torch.no_grad():
        small(pixels())
    assert not torch.equal(before, norm.running_mean)


def test_other_precisions_run_as_they_are(small: Encoder):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert small(pixels())[0].vectors.dtype is torch.bfloat16
    assert inference_form(small.half()) is None


class Noisy(SmallCNN):
    """Adds a random number."""

    def features(self, images: Tensor) -> Tensor:
        return super().features(images + torch.randn(()))


@pytest.mark.parametrize("make", [Noisy, lambda: SeveralEncoders([SmallCNN(), Noisy()])])
def test_derived_classes_are_not_traced(make: Callable[[], Encoder]):
    encoder = made(make)
    with torch.no_grad():
        assert not torch.equal(encoder(pixels())[-1].vectors, encoder(pixels())[-1].vectors)


def test_encoders_can_be_used_in_several_threads():
    problems: list[BaseException] = []
    encoders = [made(lambda: SmallCNN((4, 8, 8))) for _ in range(12)]

    def use(own: list[Encoder]) -> None:
        try:
            for encoder in own:
                check(encoder)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=use, args=(encoders[number::3] + encoders,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems


def test_a_discarded_encoder_is_freed(small: Encoder):
    other = copy.deepcopy(small)
    check(other)
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
