"""The vision tower of a foreign model as an encoder."""

from __future__ import annotations

import torch
from torch import Tensor

from caption.core.box import Box, part_of
from caption.core.errors import UserError
from caption.core.parts import Spec
from caption.core.regions import Regions, Views, mean_region
from caption.encoders.base import Encoder
from caption.models.transformers.model import ForeignModel, ImageTokens

ROUNDING = 0.01
"""Maximal difference between two passes, as a share of the largest number."""


class ForeignEncoder(Encoder):
    """Pixels -> image tokens on the grid of patches.

    Class tokens and registers have no place in the photo. They are appended to every vector of the first view: if some
    regions of an image are hidden, replaced or exchanged, the others still hold them.

    Args:
        model: the whole model.
        pixels: (1, ...) of any photo, from the model's transform.

    Raises:
        UserError: two passes of the photo give different tokens.
    """

    def __init__(self, model: ForeignModel, pixels: Tensor) -> None:
        super().__init__()
        self.model = model
        with torch.no_grad():
            pixels = pixels.to(next(model.parameters(), pixels).dtype)
            tokens, repeated = model.image_tokens(pixels), model.image_tokens(pixels)
        for first, second in zip(tokens.patches, repeated.patches, strict=True):
            if first.shape != second.shape or (first - second).abs().max() > ROUNDING * first.abs().max():
                raise UserError(
                    f"the image tokens of {type(model).__name__} differ between two passes of one photo, so its maps "
                    "cannot be placed: switch off its random masking (ViTMAE always shuffles its patches: load its "
                    "weights as a ViT)"
                )
        size, class_tokens = model.region_size, tokens.class_tokens.shape[1]
        self.region_sizes = (size * (1 + class_tokens), *[size] * (len(tokens.patches) - 1))

    def forward(self, images: Tensor) -> Views:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            weight = next(self.model.parameters(), images)
            patches, grids, class_tokens = self.model.image_tokens(images.to(weight.dtype))
        first = patches[0]
        appended = class_tokens.flatten(1)[:, None].expand(-1, first.shape[1], -1)
        vectors = (torch.cat((first, appended), -1), *patches[1:])
        return tuple(map(Regions, vectors, grids))

    def boxes(self, height: int, width: int) -> tuple[Box, ...]:
        """All views cover the same part."""
        part = part_of((0, 0, width, height), self.model.covered)
        return (part,) * len(self.region_sizes)

    @property
    def spec(self) -> Spec:
        """Foreign models have no description: raises a UserError."""
        raise cannot_be_saved()


def tokens_of(views: Views, size: int) -> ImageTokens:
    """The image tokens, of D = `size` numbers, in the regions of an encoder.

    If regions of several images were mixed, class tokens are mixed in proportion.
    """
    first, *more = views
    class_tokens = mean_region(first._replace(vectors=first.vectors[..., size:]))
    patches = (first.vectors[..., :size], *(view.vectors for view in more))
    return ImageTokens(
        patches, tuple(view.grid for view in views), class_tokens.squeeze(1).unflatten(-1, (-1, size))
    )


def cannot_be_saved() -> UserError:
    """The error for saving or exporting a foreign model, or storing its features."""
    return UserError(
        "a model of other people's code cannot be written as a checkpoint, a program or features of this package: keep "
        "its own files (save_pretrained of transformers writes them)"
    )
