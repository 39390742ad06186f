"""Attention rollout (Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3).

After self-attention a region also has information from other regions, so a decoder's map over such regions does not
show which part of the image was read. Rollout carries the map back:

    ground(zip(rollout(captioner, photos), boxes))

`rollout` goes back through the refiner of a captioner of this package, `tower_rollout` through the vision tower of a
model of transformers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from caption.analysis.replay import iter_photos
from caption.analysis.self_attention.maps import region_maps
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.results.caption import Caption

if TYPE_CHECKING:
    from caption.models.transformers.captioner import ForeignCaptioner

RESIDUAL = 0.5
"""The share of the residual connection in Abnar and Zuidema 2020."""


def attention_rollout(
    layers: Sequence[np.ndarray], residual: float = RESIDUAL, gates: Sequence[np.ndarray] | None = None
) -> np.ndarray:
    """(L, L) float64: how much of each input of the first layer (columns) is in each output of the last one (rows).

    The product A_N ... A_1 of A_n = r I + (1 − r) Σ_m g_nm W_nm / Σ_m g_nm. Rows sum to one. The shares of the
    residual connection are assumed, not measured, and the values' lengths are ignored.

    Args:
        layers: (M, L, L) of each of N layers, one or more: the weight that an output (second index) gives to each
            input (third).
        residual: r, 0 to 1; ½ in the paper.
        gates: (M,) of each layer: the heads' gates; None = 1.

    Raises:
        ValueError: `residual` is not a share.
    """
    if not 0 <= residual <= 1:
        raise ValueError(f"residual is {residual}: it is a share from 0 to 1")
    flow = unmixed = np.eye(layers[0].shape[-1])
    gates = [np.ones(len(heads)) for heads in layers] if gates is None else gates
    for heads, of_heads in zip(layers, gates, strict=True):
        if of_heads.any():  # else only the residual connection is left
            mixed = np.tensordot(of_heads / of_heads.sum(dtype=np.float64), heads.astype(np.float64), 1)
            flow = (residual * unmixed + (1 - residual) * mixed) @ flow
    return flow


def rollout(
    captioner: Captioner,
    photos: Photo | Iterable[Photo],
    captions: Iterable[Caption] | None = None,
    residual: float = RESIDUAL,
) -> list[Caption]:
    """Captions whose weights lie over the encoder's regions instead of the refined ones: α[t] A_N ... A_1.

    See `attention_rollout`. The weights of a word keep their sum.

    Args:
        captioner: the model, whose refiner is self-attention.
        photos: one, or many.
        captions: one for each photo, with this model's weights; None = those that it generates.
        residual: the share of the residual connection in each layer.

    Raises:
        UserError: the refiner has no self-attention, or mixes regions in another way, too.
        ValueError: photos and captions differ in number, or their weights lie on another grid.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    photos = list(iter_photos(photos))
    maps = region_maps(captioner, photos)
    captions = captioner.describe(photos) if captions is None else list(captions)
    if len(captions) != len(photos):
        raise ValueError(f"there are {len(captions)} captions for {len(photos)} photos")
    rolled = []
    for caption, of_photo in zip(captions, maps, strict=True):
        if caption.weights.shape[1:] != of_photo.grid:
            raise ValueError(
                f"the weights of {caption.text!r} lie on a grid of {caption.weights.shape[1:]}, and the refiner's "
                f"regions on one of {of_photo.grid}"
            )
        rolled.append(_carried_back(caption, attention_rollout(of_photo.layers, residual, of_photo.gates)))
    return rolled


def has_rollout(captioner: Captioner) -> bool:
    """Whether the captioner's refiner is self-attention, so that `rollout` can carry maps back through it."""
    chains = None if captioner.refiner is None else captioner.refiner.self_attentions()
    return chains is not None and len(chains[0]) > 0


@torch.no_grad()
def tower_rollout(
    captioner: ForeignCaptioner,
    photos: Sequence[Photo],
    captions: Sequence[Caption],
    residual: float = RESIDUAL,
) -> list[Caption]:
    """Captions whose weights lie over the input patches of a vision tower; see `attention_rollout`.

    The last layer's patches have attended to each other. The share of class tokens and registers is left out.

    Args:
        captioner: a model of transformers with an attribute `tower`.
        photos, captions: of each photo its caption by this model.
        residual: the share of the residual connection in each layer.

    Raises:
        UserError: the model has no such tower, or merges its patches.
    """
    tower: Any = getattr(captioner.decoder.model, "tower", None)
    rolled = []
    for photo, caption in zip(photos, captions, strict=True):
        pixels = captioner.transform.read(photo).pixels[None].to(captioner.device)
        layers: list[np.ndarray] = []
        if tower is not None:
            pixels = captioner.decoder.model.tower_input(pixels)  # type: ignore[operator]
            layers = _tower_layers(tower, pixels.to(next(tower.parameters()).dtype))
        patches = math.prod(caption.weights.shape[1:])
        extra = layers[0].shape[-1] - patches if layers else -1
        if not 0 <= extra <= captioner.encoder.region_sizes[0] // captioner.decoder.model.region_size:
            raise UserError(
                f"{type(captioner.decoder.model).__name__} has no vision tower with a token for each patch: its maps "
                "cannot be rolled out; take a summary of `ForeignDecoder`"
            )
        # Class tokens and registers come first.
        rolled.append(_carried_back(caption, attention_rollout(layers, residual)[extra:, extra:]))
    return rolled


def _carried_back(caption: Caption, flow: np.ndarray) -> Caption:
    """The caption with its weights over L regions multiplied by a flow (L, L)."""
    weights = caption.weights.reshape(len(caption.words), -1) @ flow
    return caption.with_weights(weights.reshape(caption.weights.shape))


def _tower_layers(tower: Any, pixels: torch.Tensor) -> list[np.ndarray]:
    """(M, N, N) of each layer, for one photo."""
    before = tower.config._attn_implementation
    tower.set_attn_implementation("eager")
    try:
        layers: Sequence[torch.Tensor] = tower(pixel_values=pixels, output_attentions=True).attentions
    finally:
        tower.set_attn_implementation(before)
    return [weights[0].float().cpu().numpy() for weights in layers]
