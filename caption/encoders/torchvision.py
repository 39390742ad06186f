"""An encoder from any torchvision CNN, cut off at one or more layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from caption.core.errors import UserError
from caption.encoders.pretrained import PretrainedEncoder

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class TorchvisionEncoder(PretrainedEncoder):
    """A model of `torchvision.models`, up to and including one of its layers.

    VGG19 with `features.35` is the paper's encoder: 14x14 regions of 512 numbers from 224 pixels. Others:
    `mobilenet_v2` with `features` (7x7x1280), `resnet101` with `layer4` (7x7x2048).

    Args:
        name: torchvision's name of the model.
        layer: dotted name of the module whose output is the grid; a container means its last module. A list of names
            gives one view per name.
        weights: the name of torchvision's weights ("DEFAULT", "IMAGENET1K_V1", ...: downloaded once), the path of a
            state dict (torch.save or safetensors), a function `module:function` that returns such a path, or None for
            random weights.
        mean: of the training images' channels, 0 to 1; by default that of ImageNet.
        std: likewise.
        finetune_from: dotted name of the first module to fine-tune. Modules that run before it stay frozen, with their
            BatchNorm statistics; None = all are fine-tuned. It has an effect only once the encoder is unfrozen.
        grid: (rows, cols) that the layer's map is averaged to (adaptive average pooling); None = the layer's own grid.
            More cells than the layer has do not add resolution, because the new cells share old ones.

    Raises:
        UserError: the model, layer or module does not exist, the layer's output is not a grid, or `grid` is not a grid.
    """

    fixed_graph = True

    def __init__(
        self,
        name: str = "vgg19",
        layer: str | Sequence[str] = "features.35",
        weights: str | None = None,
        mean: tuple[float, float, float] = IMAGENET_MEAN,
        std: tuple[float, float, float] = IMAGENET_STD,
        finetune_from: str | None = None,
        grid: tuple[int, int] | None = None,
    ) -> None:
        whole = self.whole_model(name, None)
        layers = [layer] if isinstance(layer, str) else list(layer)
        trunk = self.cut(whole, name, layers)
        super().__init__(name, trunk, whole.state_dict(), weights, mean, std, finetune_from, grid)
        self.layers = layers
        self.region_sizes = self.measure()

    def measure(self) -> tuple[int, ...]:
        """The region sizes, after checking that all layers give grids."""
        self.eval()
        try:
            with torch.no_grad():
                square, wide = (self.trunk(torch.zeros(1, 3, 64, width)) for width in (64, 128))
        except (AssertionError, RuntimeError) as error:  # Transformers take only one image size
            raise UserError(
                f"{self.model_name} does not take images of any size ({error}): choose a convolutional network"
            ) from error
        self.train()
        for layer in self.layers:
            # A wider image must change only the last dimension; in some models this is the features'.
            if square[layer].dim() != 4 or square[layer].shape[:3] != wide[layer].shape[:3]:
                raise UserError(
                    f"the layer {layer} of {self.model_name} has the output {tuple(wide[layer].shape[1:])}, which is "
                    "not a grid of (features, rows, cols): choose a convolutional layer"
                )
        return tuple(square[layer].shape[1] for layer in self.layers)

    def __getstate__(self) -> dict[str, Any]:
        # Copying or pickling a graph module switches it to training mode, which changes BatchNorm's output.
        return {**self.__dict__, "modes": {name: module.training for name, module in self.named_modules()}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        modes = state.pop("modes")
        super().__setstate__(state)
        for name, module in self.named_modules():
            module.training = modes[name]

    def maps(self, images: Tensor) -> tuple[Tensor, ...]:
        by_layer = self.trunk(images)
        return tuple(by_layer[layer] for layer in self.layers)

    def named_weights(self, weights: str) -> dict[str, Tensor]:
        return dict(self.whole_model(self.model_name, weights).state_dict())

    def whole(self) -> Any:
        return self.whole_model(self.model_name, None)

    def expected_normalisation(self) -> tuple[Sequence[float], Sequence[float]] | None:
        from torchvision import models

        try:
            transforms = models.get_model_weights(self.model_name)[self.weights or ""].transforms()
        except (KeyError, ValueError):  # a file
            return None
        return transforms.mean, transforms.std

    @staticmethod
    def cut(model: Any, name: str, layers: Sequence[str]) -> Any:
        """The part of a model up to its layers: normalised images -> their maps by name.

        Raises:
            UserError: the model has no layer of that name.
        """
        from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

        try:
            return create_feature_extractor(
                model, return_nodes={layer: layer for layer in layers}, suppress_diff_warning=True
            )
        except ValueError as error:
            nodes = get_graph_node_names(model.eval(), suppress_diff_warning=True)[1]
            top_level = ", ".join(dict.fromkeys(node.split(".")[0] for node in nodes))
            missing = [
                layer for layer in layers if not any(f"{node}.".startswith(f"{layer}.") for node in nodes)
            ]
            raise UserError(
                f"{name} has no layer {' or '.join(missing or layers)}; its top-level layers are {top_level}"
            ) from error

    @classmethod
    def whole_model(cls, name: str, weights: str | None) -> Any:
        """The model with its classifier, and with the library's weights of that name or random ones.

        Raises:
            UserError: torchvision has no model of that name, or no such weights for it.
        """
        # Imported here, because torchvision takes as long to import as torch, and other encoders do not need it.
        from torchvision import models

        if name not in models.list_models(module=models):
            similar = (
                ", ".join(models.list_models(module=models, include=f"{name[:3]}*"))
                or "vgg19, resnet101, ..."
            )
            raise UserError(f"torchvision has no classification model named {name}; similar: {similar}")
        try:
            return models.get_model(name, weights=weights)
        except (KeyError, ValueError) as error:
            raise UserError(
                f"{weights} is neither a file nor the name of torchvision's weights for {name}"
            ) from error
        except OSError as error:
            raise UserError(
                f"the weights {weights} of {name} could not be downloaded ({error}); give the path of a file instead"
            ) from error
