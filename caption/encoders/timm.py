"""An encoder from any timm model, convolutional or a vision Transformer, cut off at one or more layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from caption.core.errors import UserError, optional_package
from caption.encoders.pretrained import PretrainedEncoder

FEATURES = "features"


class TimmEncoder(PretrainedEncoder):
    """A model of timm without its classifier. Needs the extra `timm`.

    `tf_efficientnet_b0` gives 7x7x1280 from 224 pixels. The grid of a Transformer (ViT, CLIP, DINOv2, SigLIP) consists
    of its patch tokens after the last norm, without class and register tokens. Most take images of any size divisible
    by the patch size, with interpolated position embeddings; some take only one size.

    Args:
        name: timm's name of the model, with the tag of the weights if there are several
            ("vit_base_patch16_clip_224.openai").
        layer: "features" for the output of the trunk, or one of timm's stages ("blocks.4" of EfficientNet, "layer3" of
            ResNet, "blocks.8" of ViT). A list of names gives one view per name.
        weights: "timm" (downloaded once), the path of a state dict (torch.save or safetensors), a function
            `module:function` that returns such a path, or None for random weights. Names of tensors are timm's.
        mean: of the training images' channels, 0 to 1; None = that of timm's weights.
        std: likewise.
        finetune_from: dotted name of the first module to fine-tune; modules before it stay frozen, with their
            BatchNorm statistics. None = all are fine-tuned. It has an effect only once the encoder is unfrozen.
        grid: (rows, cols) that every view is averaged to (adaptive average pooling); None = the model's own.

    Raises:
        UserError: timm is not installed, or the model, layer or module does not exist.
    """

    fixed_graph = True

    def __init__(
        self,
        name: str = "tf_efficientnet_b0",
        layer: str | Sequence[str] = FEATURES,
        weights: str | None = None,
        mean: tuple[float, float, float] | None = None,
        std: tuple[float, float, float] | None = None,
        finetune_from: str | None = None,
        grid: tuple[int, int] | None = None,
    ) -> None:
        trunk = _model(name)
        config, names_of_whole = trunk.pretrained_cfg, list(trunk.state_dict())
        stages = [stage["module"] for stage in trunk.feature_info]
        layers = [layer] if isinstance(layer, str) else list(layer)
        for unknown in (layer for layer in layers if layer not in (*stages, FEATURES)):
            raise UserError(f"{name} has no layer {unknown}; its layers are {', '.join((*stages, FEATURES))}")
        sizes, output_size = _measure(trunk)
        if output_size is None:  # the output is the last stage's
            layers = [stages[-1] if layer == FEATURES else layer for layer in layers]
        if FEATURES in layers:
            trunk.reset_classifier(0, "")
        else:
            trunk.prune_intermediate_layers([stages.index(layer) for layer in layers])
        mean, std = mean or config["mean"], std or config["std"]
        super().__init__(name, trunk, names_of_whole, weights, mean, std, finetune_from, grid)
        self.layers = layers
        self.stages = sorted(
            {stages.index(layer) if layer in stages else len(stages) - 1 for layer in layers}
        )
        self.stage_names = [stages[index] for index in self.stages]
        size_of = dict(zip((*stages, FEATURES), (*sizes, output_size), strict=True))
        self.region_sizes = tuple(size_of[layer] for layer in layers)

    def maps(self, images: Tensor) -> tuple[Tensor, ...]:
        trunk: Any = self.trunk
        try:
            output, maps = trunk.forward_intermediates(images, indices=self.stages, norm=True)
        except AssertionError as error:  # Transformers check the size
            height, width = images.shape[2:]
            raise UserError(
                f"{self.model_name} does not take images of {height}x{width} pixels: {error} Change the size of the "
                "image transform."
            ) from error
        by_layer = dict(zip(self.stage_names, maps, strict=True)) | {FEATURES: output}
        return tuple(by_layer[layer] for layer in self.layers)

    def named_weights(self, weights: str) -> dict[str, Tensor]:
        if weights != "timm":
            raise UserError(f"{weights} is neither a file nor weights of timm: give a path, or timm")
        return _model(self.model_name, pretrained=True).state_dict()

    def whole(self) -> Any:
        return _model(self.model_name)

    def expected_normalisation(self) -> tuple[Sequence[float], Sequence[float]] | None:
        if self.weights != "timm":
            return None
        import timm

        config: Any = timm.get_pretrained_cfg(self.model_name)
        return config.mean, config.std


def _model(name: str, pretrained: bool = False) -> Any:
    with optional_package(f"the encoder {name}", "timm"):
        import timm  # here, because importing it takes seconds
    if not timm.is_model(name):
        similar = timm.list_models(f"{name[:6]}*")[:5] or ["tf_efficientnet_b0", "resnet50", "..."]
        raise UserError(f"timm has no model named {name}; similar: {', '.join(similar)}")
    try:
        model = _create(name, pretrained)
    except Exception as error:  # the hub's client raises many types
        reason = (
            f"the weights of {name} could not be downloaded" if pretrained else f"timm cannot create {name}"
        )
        raise UserError(f"{reason} ({error}); give another name or the path of a file instead") from error
    if not (hasattr(model, "forward_intermediates") and hasattr(model, "prune_intermediate_layers")):
        raise UserError(f"timm does not return grids of {name}: choose a model with forward_intermediates")
    return model


def _create(name: str, pretrained: bool) -> Any:
    import timm

    config: Any = timm.get_pretrained_cfg(name)
    if config.fixed_input_size:
        # Transformers take any size only with this argument; some other models of one size do not accept it.
        try:
            return timm.create_model(name, pretrained=pretrained, dynamic_img_size=True)
        except TypeError:
            pass
    return timm.create_model(name, pretrained=pretrained)


def _measure(model: Any) -> tuple[list[int], int | None]:
    """The length of the region vectors of each stage, and of the output if it is a map other than the last stage's."""
    model.eval()
    with torch.no_grad():
        try:
            side = 4 * model.feature_info[-1]["reduction"]
            output, maps = model.forward_intermediates(torch.zeros(1, 3, side, side), norm=True)
        except (AssertionError, RuntimeError):  # takes only one size
            output, maps = model.forward_intermediates(
                torch.zeros(1, *model.pretrained_cfg["input_size"]), norm=True
            )
    model.train()
    differs = output.dim() == 4 and output.shape[1] == model.num_features and output.shape != maps[-1].shape
    return [stage.shape[1] for stage in maps], output.shape[1] if differs else None
