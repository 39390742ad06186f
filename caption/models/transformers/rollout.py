"""Maps carried back through the self-attention of a foreign model's vision tower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from caption.core.errors import UserError
from caption.models.transformers.captioner import ForeignCaptioner
from caption.results.caption import Caption

if TYPE_CHECKING:
    from caption.data.photos import Photo


@torch.no_grad()
def rollout(
    captioner: ForeignCaptioner, photos: Sequence[Photo], captions: Sequence[Caption], residual: float = 0.5
) -> list[Caption]:
    """Captions whose weights lie on what the patches were made of (attention rollout, Abnar and Zuidema 2020).

    The last layer's patches have seen each other. A layer mixes them by `residual` I + (1 − `residual`) A, with A the
    mean of its heads. What comes from class tokens and registers counts as elsewhere.

    Args:
        captioner: a model of transformers with an attribute `tower`.
        photos, captions: of each photo its caption by this model.
        residual: share of a layer's input in its output.

    Raises:
        UserError: the model has no such tower, or merges its patches.
    """
    tower: Any = getattr(captioner.decoder.model, "tower", None)
    rolled = []
    for photo, caption in zip(photos, captions, strict=True):
        pixels = captioner.transform.read(photo).pixels[None].to(captioner.device)
        layers = [] if tower is None else _attentions(tower, pixels.to(next(tower.parameters()).dtype))
        patches = math.prod(caption.weights.shape[1:])
        others = layers[0].shape[-1] - patches if layers else -1
        if not 0 <= others <= captioner.encoder.region_sizes[0] // captioner.decoder.model.region_size:
            raise UserError(
                f"{type(captioner.decoder.model).__name__} has no vision tower with a token for each patch: its maps "
                "cannot be rolled out; take a summary of `ForeignDecoder`"
            )
        mixed = torch.eye(others + patches)
        for weights in layers:
            mean = weights[0].mean(0).float().cpu()
            mixed = (residual * torch.eye(len(mean)) + (1 - residual) * mean) @ mixed
        from_patches = caption.weights.reshape(-1, patches) @ mixed[others:, others:].numpy()
        rolled.append(caption.with_weights(from_patches.reshape(caption.weights.shape)))
    return rolled


def _attentions(tower: Any, pixels: torch.Tensor) -> Sequence[torch.Tensor]:
    """(1, M, N, N) of each layer."""
    before = tower.config._attn_implementation
    tower.set_attn_implementation("eager")
    try:
        layers: Sequence[torch.Tensor] = tower(pixel_values=pixels, output_attentions=True).attentions
    finally:
        tower.set_attn_implementation(before)
    return layers
