"""Attention rollout (Abnar and Zuidema 2020, "Quantifying Attention Flow in Transformers", section 3).

After self-attention a region also has information from other regions, so a decoder's map over such regions does not
show which part of the image was read. Rollout carries the map back:

    ground(zip(rollout(captioner, photos), boxes))
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from caption.analysis.replay import iter_photos
from caption.analysis.self_attention.maps import region_maps
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.data.photos import Photo
from caption.models.transformers.captioner import ForeignCaptioner
from caption.results.caption import Caption

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
    """Captions whose weights lie over what was read first: α[t] A_N ... A_1.

    These are the encoder's regions instead of the refined ones; with a model of transformers, the input patches of its
    vision tower, whose last layer's patches have attended to each other. See `attention_rollout`. The weights of a word
    keep their sum, but for the share of class tokens and registers, which is left out.

    Args:
        captioner: the model, whose refiner or vision tower is self-attention.
        photos: one, or many.
        captions: one for each photo, with this model's weights; None = those that it generates.
        residual: the share of the residual connection in each layer.

    Raises:
        UserError: the refiner has no self-attention, or mixes regions in another way, too; the model has no vision
            tower, or it merges patches.
        ValueError: photos and captions differ in number, or their weights lie on another grid.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    photos = list(iter_photos(photos))
    captions = captioner.describe(photos) if captions is None else list(captions)
    if len(captions) != len(photos):
        raise ValueError(f"there are {len(captions)} captions for {len(photos)} photos")
    flows: Iterable[np.ndarray]
    if isinstance(captioner, ForeignCaptioner):
        regions = (math.prod(caption.weights.shape[1:]) for caption in captions)
        pairs = zip(photos, regions, strict=True)
        flows = (
            attention_rollout(_tower_layers(captioner, *pair), residual)[-pair[1] :, -pair[1] :]
            for pair in pairs
        )
    else:
        maps = region_maps(captioner, photos)
        flows = [attention_rollout(of_photo.layers, residual, of_photo.gates) for of_photo in maps]
    rolled = []
    for caption, flow in zip(captions, flows, strict=True):
        weights = caption.weights.reshape(len(caption.words), math.prod(caption.weights.shape[1:]))
        if weights.shape[1] != len(flow):
            raise ValueError(
                f"the weights of {caption.text!r} lie on {weights.shape[1]} regions, and the model has {len(flow)}"
            )
        rolled.append(caption.with_weights((weights @ flow).reshape(caption.weights.shape)))
    return rolled


def has_rollout(captioner: Captioner) -> bool:
    """Whether the captioner's refiner is self-attention, so that `rollout` can carry maps back through it."""
    chains = None if captioner.refiner is None else captioner.refiner.self_attentions()
    return chains is not None and len(chains[0]) > 0


def reads_all_patches(layers: Sequence[Tensor]) -> bool:
    """Whether the layers of a vision tower, (B', M, N, N) of one photo, have one map over the same N tokens. Those of
    Swin have one for each window, and fewer windows from stage to stage."""
    return len({weights.shape[-2:] for weights in layers}) == 1 and all(
        len(weights) == 1 for weights in layers
    )


@torch.no_grad()
def _tower_layers(captioner: ForeignCaptioner, photo: Photo, patches: int) -> list[np.ndarray]:
    """(M, N, N) of each layer of the vision tower, for one photo; its patches come last, after class tokens and
    registers."""
    model: Any = captioner.decoder.model
    tower: Any = getattr(model, "tower", None)
    layers: list[np.ndarray] = []
    pixels: Tensor | None = None
    if tower is not None and tower.main_input_name != "flattened_patches":  # of Pix2Struct
        pixels = model.tower_input(captioner.read(photo).pixels[None].to(captioner.device))
    # LLaVA-NeXT's are tiles, which do not attend to each other.
    if pixels is not None and pixels.dim() == 4:
        before = tower.config._attn_implementation
        tower.set_attn_implementation("eager")
        try:
            output = tower(pixel_values=pixels.to(next(tower.parameters()).dtype), output_attentions=True)
        finally:
            tower.set_attn_implementation(before)
        if reads_all_patches(output.attentions):
            layers = [weights[0].float().cpu().numpy() for weights in output.attentions]
    extra = layers[0].shape[-1] - patches if layers else -1
    if not 0 <= extra <= captioner.encoder.region_sizes[0] // model.region_size:
        raise UserError(
            f"{type(model).__name__} has no vision tower with a token for each patch: its maps cannot be rolled out; "
            "take another map, such as mean"
        )
    return layers
