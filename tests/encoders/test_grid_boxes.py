"""The part of the input that a grid covers, against where the gradient of a cell lies when the network is linear."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from caption.core.box import cell_centres
from caption.core.regions import Regions, Views
from caption.encoders import (
    EfficientNetLite,
    Encoder,
    SeveralEncoders,
    SmallCNN,
    TimmEncoder,
    TorchvisionEncoder,
)
from caption.encoders.grid_boxes import grid_boxes

STAGES = 5
HALF = (2**STAGES - 1) / 2
"""Five layers of kernel 3 and stride 2 begin half a pixel, one, two, ... too early: 15.5 pixels."""


class Linear(TorchFunctionMode):
    """Within it, kernels are even and of one channel, ReLUs do nothing, and maxima are means.

    The gradient of a cell then lies evenly around what it sees.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, named = function.__name__, kwargs or {}
        if name == "conv2d":
            images, weight, _, stride, padding, dilation, _ = args
            ones = torch.ones(1, 1, *weight.shape[2:], dtype=images.dtype)
            even = ones / ones.numel()
            return functional.conv2d(images.mean(1, keepdim=True), even, None, stride, padding, dilation)
        if name == "max_pool2d":
            return functional.avg_pool2d(*args, stride=named["stride"], padding=named["padding"])
        return args[0] if name == "relu" else function(*args, **named)


class Crooked(nn.Module):
    """Everything that moves a grid, along each side differently, with a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, (5, 3), stride=(2, 3), padding=(1, 0), dilation=(1, 2))
        self.pad = nn.ZeroPad2d((0, 3, 2, 1))
        self.unpadded = nn.Conv2d(4, 4, 3)
        self.same = nn.Conv2d(4, 4, (4, 1), padding="same")
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.block = nn.Conv2d(4, 4, 3, stride=2, padding=1)
        self.shortcut = nn.Conv2d(4, 4, 1, stride=2)

    def forward(self, images: Tensor) -> Tensor:
        maps = self.pool(self.same(self.unpadded(self.pad(self.first(images)))))
        return functional.avg_pool2d(torch.relu(self.block(maps)) + self.shortcut(maps), 2, 1)


ENCODERS: dict[str, Callable[[], Encoder]] = {
    "small": SmallCNN,
    "mobilenet_v2": lambda: TorchvisionEncoder("mobilenet_v2", ["features.13", "features"]),
    "resnet18": lambda: TorchvisionEncoder("resnet18", "layer4"),
    "efficientnet_lite0": lambda: EfficientNetLite("efficientnet_lite0"),
    "tf_efficientnet_lite0": lambda: TimmEncoder("tf_efficientnet_lite0", ["blocks.4", "features"]),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("size", [97, 102])
def test_a_cell_lies_around_what_it_sees(size: int):
    network = Crooked()
    (box,) = grid_boxes(network, torch.zeros(1, 3, size, size))
    images = torch.zeros(1, 3, size, size, dtype=torch.float64, requires_grad=True)
    with Linear():
        maps = network(images)
    rows, cols = maps.shape[2:]
    row, col = rows // 2, cols // 2
    maps[..., row, col].sum().backward()
    seen = images.grad.sum((0, 1))
    assert not seen[[0, -1]].any()  # else the border cuts off a part of it
    places = torch.arange(size, dtype=torch.float64) + 0.5
    centre = [float((seen.sum(axis) * places).sum() / seen.sum()) for axis in (0, 1)]
    x, y = cell_centres(rows, cols, box)
    assert [x[col], y[row]] == pytest.approx(centre)


def square(start: float, end: float) -> tuple[float, ...]:
    return start, start, end, end


@pytest.mark.parametrize(
    ("name", "size", "expected"),
    [
        ("small", 64, [square(0, 64)]),  # nothing moves: kernel 4, stride 2, padding 1
        ("mobilenet_v2", 224, [square(-7.5, 216.5), square(-HALF, 224 - HALF)]),
        ("mobilenet_v2", 225, [square(-7.5, 232.5), square(-HALF, 225 + HALF)]),
        ("resnet18", 448, [square(-HALF, 448 - HALF)]),
        ("efficientnet_lite0", 257, [square(-HALF, 257 + HALF)]),
        ("tf_efficientnet_lite0", 224, [square(7.5, 231.5), square(HALF, 224 + HALF)]),
        ("tf_efficientnet_lite0", 257, [square(-7.5, 264.5), square(-HALF, 257 + HALF)]),
    ],
)
def test_boxes_worked_out_by_hand(name: str, size: int, expected: list[tuple[float, ...]]):
    if name.startswith("tf"):
        pytest.importorskip("timm")
    assert [tuple(box) for box in ENCODERS[name]().boxes(size, size)] == expected


def test_other_operations_keep_the_edges():
    """Patches, averaging to another grid, interpolation and operations on lists of regions."""

    def features(images: Tensor) -> tuple[Tensor, ...]:
        patches = functional.conv2d(images, torch.ones(1, 3, 16, 16), stride=16)
        regions = torch.cat((torch.zeros(1, 1, 1), patches.flatten(2).transpose(1, 2)), 1)
        back = regions[:, 1:].transpose(1, 2).reshape(1, 1, 4, 6)
        moved = functional.conv2d(back, torch.ones(1, 1, 3, 3), stride=2, padding=1)
        averaged = functional.adaptive_avg_pool2d(moved, (5, 5))
        return back, moved, averaged, functional.interpolate(moved, (9, 9)), torch.zeros(1, 2, 3, 3)

    kept, *moved, not_computed = grid_boxes(features, torch.zeros(1, 3, 64, 96))
    assert kept == not_computed == (0, 0, 96, 64)
    assert moved == [(-8, -8, 88, 56)] * 3


def test_paths_that_cover_different_parts_are_averaged():
    """A shortcut of means over 2x2 cells, as in ResNet-D."""

    def features(images: Tensor) -> Tensor:
        main = functional.conv2d(images, torch.ones(3, 3, 3, 3), stride=2, padding=1)
        return main + functional.avg_pool2d(images, 2)

    assert grid_boxes(features, torch.zeros(1, 3, 8, 8)) == (square(-0.25, 7.75),)


class NeedsImages(SmallCNN):
    """Refuses an empty batch, as some operations do."""

    def features(self, images: Tensor) -> Tensor | tuple[Tensor, ...]:
        images.sum((1, 2, 3)).max()
        return super().features(images)


def test_an_encoder_computes_them_once_without_an_image_unless_an_operation_needs_one(
    monkeypatch: pytest.MonkeyPatch,
):
    computed: list[int] = []
    conv2d = functional.conv2d
    monkeypatch.setattr(functional, "conv2d", lambda *args: (computed.append(len(args[0])), conv2d(*args))[1])
    encoder = SmallCNN((4, 4, 6)).train()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    assert encoder.boxes(32, 48) == encoder.boxes(32, 48) == ((0, 0, 48, 32),)
    assert computed == [0, 0, 0]  # of three layers, once
    # It stays as it is.
    assert encoder.layers.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in encoder.state_dict().items())
    assert NeedsImages((4, 4, 6)).boxes(32, 48) == ((0, 0, 48, 32),)
    assert {*computed} == {0, 1}


class Replaced(Encoder):
    """Its own `forward`, without `features`."""

    def forward(self, images: Tensor) -> Views:
        maps = functional.conv2d(images.float(), torch.ones(1, 3, 3, 3), stride=2, padding=1)
        return (Regions(maps.flatten(2).mT, (maps.shape[2], maps.shape[3])),)


def test_an_encoder_may_replace_forward():
    assert Replaced().boxes(8, 8) == (square(-0.5, 7.5),)


def test_several_encoders_have_the_boxes_of_each():
    both = SeveralEncoders([SmallCNN((4, 4, 6), views=2), TorchvisionEncoder("mobilenet_v2", "features.1")])
    assert [tuple(box) for box in both.boxes(64, 64)] == [square(0, 64), square(0, 64), square(-0.5, 63.5)]
