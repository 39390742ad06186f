"""EfficientNet-Lite: EfficientNet without squeeze-and-excitation, with ReLU6. Its tensors have torchvision's names.

It needs neither torchvision nor a trace of the model, which would take longer than captioning a photo.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from typing import Any

from torch import Tensor, nn

from caption.core.errors import UserError
from caption.encoders.torchvision import TorchvisionEncoder

MEAN, STD = 127 / 255, 128 / 255
"""The weights were trained on (x - 127) / 128."""
HEAD = 1280
"""Channels of the last convolution; the width does not scale them."""
STAGES = (
    # expansion, kernel, stride, input channels, output channels, blocks
    (1, 3, 1, 32, 16, 1),
    (6, 3, 2, 16, 24, 2),
    (6, 5, 2, 24, 40, 2),
    (6, 3, 2, 40, 80, 3),
    (6, 5, 1, 80, 112, 3),
    (6, 5, 2, 112, 192, 4),
    (6, 3, 1, 192, 320, 1),
)
"""Tan and Le 2019, Table 1."""
SCALES = {"0": (1.0, 1.0), "1": (1.0, 1.1), "2": (1.1, 1.2), "3": (1.2, 1.4), "4": (1.4, 1.8)}
"""Factors of the channels and of the blocks per stage, by the last character of the name."""
OUTSIDE_BLOCKS = {"_conv_stem": "features.0.0", "_bn0": "features.0.1"}
OUTSIDE_BLOCKS |= {"_conv_head": "features.8.0", "_bn1": "features.8.1", "_fc": "classifier.1"}
IN_BLOCK = {"_expand_conv": (0, 0), "_bn0": (0, 1), "_depthwise_conv": (1, 0), "_bn1": (1, 1)}
IN_BLOCK |= {"_project_conv": (3, 0), "_bn2": (3, 1)}
"""Index of a port's module in torchvision's block with an expansion; without an expansion, the first index is one
lower."""


class EfficientNetLite(TorchvisionEncoder):
    """EfficientNet-Lite, up to and including one of its layers.

    `efficientnet_lite2` gives 9x9x1280 from 257 pixels (`features`), and 17x17x120 (`features.5`). Its ImageNet weights
    come from the package index (the extra `photos`): 77.6 % top-1 at 260 pixels.

    The weights were trained with TensorFlow's "same" padding. At sizes of 32 n + 1 (225, 257, 289) it equals the
    symmetric padding of torchvision's blocks, and every cell is at the centre of its receptive field; other sizes shift
    the maps by half a cell.

    Args:
        name: efficientnet_lite0 to efficientnet_lite4.
        layer: dotted name of the module whose output is the grid: "features", or "features.N" for stage N. A list of
            names gives one view per name.
        weights: the path of a state dict (torch.save or safetensors), a function `module:function` that returns such a
            path, or None for random weights. Names of tensors are torchvision's, or those of the port
            `efficientnet-lite-pytorch`, which are converted.
        mean: of the training images' channels, 0 to 1.
        std: likewise.
        finetune_from: dotted name of the first module to fine-tune. Modules that run before it stay frozen, with their
            BatchNorm statistics; None = all are fine-tuned. It has an effect only once the encoder is unfrozen.
        grid: (rows, cols) that the layer's map is averaged to; None = the layer's own grid.

    Raises:
        UserError: the model, layer or module does not exist.

    Source: Tan and Le 2019, "EfficientNet"; the Lite variants are those of TensorFlow's model garden (2020).
    """

    fixed_graph = True

    def __init__(
        self,
        name: str = "efficientnet_lite2",
        layer: str | Sequence[str] = "features",
        weights: str | None = None,
        mean: tuple[float, float, float] = (MEAN, MEAN, MEAN),
        std: tuple[float, float, float] = (STD, STD, STD),
        finetune_from: str | None = None,
        grid: tuple[int, int] | None = None,
    ) -> None:
        super().__init__(name, layer, weights, mean, std, finetune_from, grid)

    @classmethod
    def whole_model(cls, name: str, weights: str | None) -> Any:
        if weights is not None:
            raise UserError(f"{weights} is not a file: the weights of {name} must be a file")
        return efficientnet_lite(name)

    @staticmethod
    def cut(model: Any, name: str, layers: Sequence[str]) -> Any:
        last = len(model.features) - 1
        numbers = {f"features.{number}": number for number in range(last + 1)} | {"features": last}
        if not numbers.keys() >= {*layers}:  # inside a stage
            return TorchvisionEncoder.cut(model, name, layers)
        return Stages(model.features, {layer: numbers[layer] for layer in layers})

    def measure(self) -> tuple[int, ...]:
        """The number of channels of each layer: that of its last convolution, read without a forward pass."""
        # All modules in `features` give a grid. A forward pass of a model without memory, as when a checkpoint is
        # loaded, would import torch's compiler, which takes longer than captioning a photo.
        weights = self.trunk.state_dict()
        sizes = []
        for layer in self.layers:
            names = [
                name for name in weights if name.startswith(f"{layer}.") and layer.startswith("features")
            ]
            channels = [len(weights[name]) for name in names if weights[name].dim() == 4]
            if not channels:
                return super().measure()
            sizes.append(channels[-1])
        return tuple(sizes)

    def pretrained_state(self) -> dict[str, Tensor]:
        state = super().pretrained_state()
        if "_conv_stem.weight" in state:  # names of the port
            state = torchvision_names(state, self.names_of_whole)
        return state

    def expected_normalisation(self) -> tuple[Sequence[float], Sequence[float]]:
        return (MEAN,) * 3, (STD,) * 3


class Whole(nn.Module):
    """EfficientNet-Lite with a classifier of 1,000 classes.

    Args:
        width: factor of the channels.
        depth: factor of the blocks per stage.
    """

    def __init__(self, width: float, depth: float) -> None:
        super().__init__()
        layers: list[nn.Module] = [_convolution(3, STAGES[0][3], 3, 2)]  # the stem is not scaled
        inputs = STAGES[0][3]
        for number, (expansion, kernel, stride, _, outputs, blocks) in enumerate(STAGES):
            outputs = _channels(outputs * width)
            scaled = blocks if number in (0, len(STAGES) - 1) else math.ceil(blocks * depth)
            stage = [Block(expansion, kernel, stride, inputs, outputs)]
            stage += [Block(expansion, kernel, 1, outputs, outputs) for _ in range(scaled - 1)]
            layers.append(nn.Sequential(*stage))
            inputs = outputs
        self.features = nn.Sequential(*layers, _convolution(inputs, HEAD, 1))
        self.classifier = nn.Sequential(nn.Identity(), nn.Linear(HEAD, 1000))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images).mean((2, 3)))


class Block(nn.Module):
    """Inverted residual: expand, convolve each channel, project. Source: Sandler et al. 2018, "MobileNetV2"."""

    def __init__(self, expansion: int, kernel: int, stride: int, inputs: int, outputs: int) -> None:
        super().__init__()
        wide = expansion * inputs
        expand = [] if expansion == 1 else [_convolution(inputs, wide, 1)]
        depthwise = _convolution(wide, wide, kernel, stride, groups=wide)
        project = _convolution(wide, outputs, 1, activation=False)
        # nn.Identity takes the index of EfficientNet's squeeze-and-excitation.
        self.block = nn.Sequential(*expand, depthwise, nn.Identity(), project)
        self.has_shortcut = stride == 1 and inputs == outputs

    def forward(self, images: Tensor) -> Tensor:
        return self.block(images) + images if self.has_shortcut else self.block(images)


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, activation: bool = True
) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False)
    norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
    return nn.Sequential(conv, norm, *[nn.ReLU6(inplace=True)] * activation)


class Stages(nn.Module):
    """The first stages of a model: images -> the maps of the requested stages, by name.

    Args:
        features: all stages.
        numbers: indices of the requested stages, by the names of the layers.
    """

    def __init__(self, features: nn.Sequential, numbers: dict[str, int]) -> None:
        super().__init__()
        self.features = nn.Sequential(*[*features][: max(numbers.values()) + 1])
        self.numbers = numbers

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        maps = []
        for stage in self.features:
            images = stage(images)
            maps.append(images)
        return {layer: maps[number] for layer, number in self.numbers.items()}


def efficientnet_lite(name: str) -> Whole:
    """The whole model with random weights."""
    scale = name.removeprefix("efficientnet_lite")
    if scale not in SCALES:
        names = ", ".join(f"efficientnet_lite{scale}" for scale in SCALES)
        raise UserError(f"there is no EfficientNet-Lite named {name}: choose one of {names}")
    return Whole(*SCALES[scale])


def _channels(scaled: float) -> int:
    """The multiple of 8 nearest to a number of channels, but not less than nine tenths of it."""
    nearest = max(8, int(scaled + 4) // 8 * 8)
    return nearest if nearest >= 0.9 * scaled else nearest + 8


def torchvision_names(state: dict[str, Tensor], names_of_whole: Collection[str]) -> dict[str, Tensor]:
    """Rename the tensors of the port `efficientnet-lite-pytorch`. Names that the port does not use are kept.

    The port numbers all blocks consecutively, torchvision numbers them by stage and block.

    Args:
        state: tensors by the port's names.
        names_of_whole: torchvision's names of the same model's tensors, which give the number of blocks per stage.
    """
    numbers = {
        (int(m[1]), int(m[2])) for n in names_of_whole if (m := re.match(r"features\.(\d+)\.(\d+)\.block", n))
    }
    blocks = [f"features.{stage}.{block}.block" for stage, block in sorted(numbers)]
    return {_renamed(name, state, blocks): tensor for name, tensor in state.items()}


def _renamed(name: str, state: dict[str, Tensor], blocks: list[str]) -> str:
    if not (match := re.match(r"_blocks\.(\d+)\.(\w+)\.(\w+)$", name)):
        module, _, tensor = name.rpartition(".")
        return f"{OUTSIDE_BLOCKS[module]}.{tensor}" if module in OUTSIDE_BLOCKS else name
    block, module, tensor = int(match[1]), match[2], match[3]
    if block >= len(blocks) or module not in IN_BLOCK:
        return name
    layer, index = IN_BLOCK[module]
    layer -= f"_blocks.{block}._expand_conv.weight" not in state
    return f"{blocks[block]}.{layer}.{index}.{tensor}"
