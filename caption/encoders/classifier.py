"""The classifier that an encoder was trained with: a linear layer on the average of its regions.

Applied to the attention's weighted average, the layer gives the classes that the encoder recognises where a decoder
attends (`caption.analysis.lens`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.core.errors import CheckpointError, UserError
from caption.core.regions import mean_region
from caption.core.runtime.eval_mode import eval_mode
from caption.encoders.base import Encoder
from caption.encoders.pretrained import PretrainedEncoder

ROUNDED = 2e-3
"""Relative difference of weights that were stored in half precision."""


class Classifier(nn.Module):
    """Averages of regions (..., D) -> logits (..., C): an optional LayerNorm (ConvNeXt, ViT), then a linear layer.

    Args:
        linear: D -> C.
        norm: applied to the average first; None = no normalisation.
    """

    def __init__(self, linear: nn.Linear, norm: nn.LayerNorm | None = None) -> None:
        super().__init__()
        self.linear = linear
        self.norm = norm

    def forward(self, averages: Tensor) -> Tensor:
        if self.norm is not None:
            averages = self.norm(averages)
        return self.linear(averages)


@torch.no_grad()
def classifier_of(encoder: Encoder, height: int, width: int) -> Classifier:
    """The classifier of an encoder's pretrained weights, after checking that it reads the average of the regions.

    The check passes two images through the encoder and through the whole pretrained model: the classifier must map the
    mean of the regions to the model's logits.

    Args:
        encoder: of the first view of a captioner, or with a single view.
        height: of its input, in pixels.
        width: likewise.

    Raises:
        UserError: the encoder has no classifier, its normalisation is not that of the weights, it was fine-tuned, or
            the classifier does not read the mean of these regions.
    """
    if not isinstance(encoder, PretrainedEncoder) or encoder.weights is None:
        reason = (
            "was trained with the captions"
            if not isinstance(encoder, PretrainedEncoder)
            else "names no weights"
        )
        raise UserError(
            f"the encoder {type(encoder).__name__} has no classifier, because it {reason}: the lens needs an encoder "
            "of torchvision, timm or EfficientNetLite with pretrained weights"
        )
    name = encoder.model_name
    _check_normalisation(encoder)
    whole = encoder.whole()
    try:
        whole.load_state_dict(encoder.pretrained_state())
    except RuntimeError as error:
        raise UserError(
            f"the weights {encoder.weights} have no classifier of {name}: {str(error).splitlines()[-1].strip()}"
        ) from error
    except CheckpointError as error:
        raise UserError(f"the classifier of {name} cannot be read: {error}") from error
    whole = whole.to(encoder.mean.device).eval()
    _check_trunk(encoder, whole)
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, 3, height, width), dtype=torch.uint8, generator=generator)
    images = images.to(encoder.mean.device)
    with eval_mode(encoder):
        regions = encoder(images)[0]
        logits = whole(encoder.normalise(images))
    if isinstance(logits, Tensor):
        average = mean_region(regions)[:, 0]
        for candidate in _candidates(whole, average.shape[1]):
            if candidate.linear.out_features == logits.shape[-1] and torch.allclose(
                candidate(average), logits, rtol=0, atol=0.01 * float(logits.abs().max())
            ):
                return candidate.requires_grad_(False)
    layers = ", ".join(getattr(encoder, "layers", ["its output"]))
    raise UserError(
        f"the classifier of {name} does not read the average of the regions of {layers}: the lens needs the last "
        "layer of a model that averages its regions before a single linear layer"
    )


def _candidates(whole: nn.Module, size: int) -> list[Classifier]:
    linear = [m for m in whole.modules() if isinstance(m, nn.Linear) and m.in_features == size][-1:]
    norms = [
        m for m in whole.modules() if isinstance(m, nn.LayerNorm) and tuple(m.normalized_shape) == (size,)
    ]
    return [Classifier(layer, norm) for layer in linear for norm in (None, *norms[::-1])]


def _check_normalisation(encoder: PretrainedEncoder) -> None:
    """Raise a UserError if pixels are not normalised as in the training of the weights, where that is known."""
    expected = encoder.expected_normalisation()
    if expected is None:
        return
    actual = (encoder.mean.flatten().tolist(), encoder.std.flatten().tolist())
    for statistic, values, trained in zip(("mean", "std"), actual, expected, strict=True):
        if max(abs(a - b) for a, b in zip(values, trained, strict=True)) > 0.01:
            values, trained = ([round(value, 3) for value in channels] for channels in (values, trained))
            raise UserError(
                f"the encoder {encoder.model_name} normalises pixels with the {statistic} {values}, but its classifier "
                f"was trained with {trained}: its classes would be wrong"
            )


def _check_trunk(encoder: PretrainedEncoder, whole: nn.Module) -> None:
    """Raise a UserError if the encoder's weights are not those that the classifier was trained with."""
    pretrained = whole.state_dict()
    for name, tensor in encoder.trunk.state_dict().items():
        if name not in pretrained or not tensor.is_floating_point():
            continue
        expected = pretrained[name].to(tensor)
        if (tensor - expected).abs().max() > ROUNDED * max(1e-3, float(expected.abs().max())):
            raise UserError(
                f"the encoder {encoder.model_name} was fine-tuned ({name} differs from {encoder.weights}): its "
                "classifier was not trained on these regions"
            )
