"""Maps of self-attention: where each region looks in the refiner, and each word in a Transformer decoder.

maps = region_maps(captioner, photos)[0]
maps.of_cells((2, 3)).plot(map="layer 0")      # where the region in row 2, column 3 looks, head by head
word_maps(captioner, photos)[0].plot_matrix()
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from caption.analysis.replay import batches, sentences
from caption.attention.map_hooks import record_self_attention
from caption.attention.scaled_dot_product import ScaledDotProduct
from caption.captioner import Captioner
from caption.core.box import Box
from caption.core.errors import UserError
from caption.core.regions import Grid
from caption.core.runtime.eval_mode import eval_mode
from caption.data.photos import Photo
from caption.encoders import Refiner
from caption.encoders.refiners.attention_among_regions import RegionAttention
from caption.results.caption import AttentionMaps, Caption


@dataclass(frozen=True)
class RegionMaps:
    """The self-attention of one photo's L regions."""

    layers: tuple[np.ndarray, ...]
    """(M, L, L) float32 of each layer: the weight that a region (second index) gives to each region (third)."""
    gates: tuple[np.ndarray, ...]
    """(M,) float32 of each layer: the heads' gates, 1 without gates."""
    grid: Grid
    """(rows, cols)."""
    box: Box
    """The part of the photo that the grid covers, in its pixels."""
    seen: Box
    """The part of the photo that the model has seen."""
    image: Photo | None = None
    """The photo."""

    def of_cells(self, *cells: tuple[int, int]) -> Caption:
        """The maps of some regions as a caption with a word for each, for all figures that draw captions.

        Args:
            cells: row and column of regions, from 0; none = all.

        Returns:
            a caption whose maps "layer 0", "layer 1", ... have the heads, and whose weights are the mean over them.

        Raises:
            ValueError: the grid has no such cell.
        """
        rows, cols = self.grid
        chosen = cells or tuple(np.ndindex(rows, cols))
        for row, col in chosen:
            if not (0 <= row < rows and 0 <= col < cols):
                raise ValueError(f"a grid of {rows} rows and {cols} columns has no cell {(row, col)}")
        places = [row * cols + col for row, col in chosen]
        maps = {
            f"layer {number}": heads[:, places].swapaxes(0, 1).reshape(len(places), -1, rows, cols)
            for number, heads in enumerate(self.layers)
        }
        words = [f"({row}, {col})" for row, col in chosen]
        return Caption(
            " ".join(words), words, np.concatenate([*maps.values()], 1).mean(1), 0.0, np.zeros(len(words)),
            self.box, image=self.image, seen=self.seen, maps=AttentionMaps(maps),
        )  # fmt: skip


def region_maps(
    captioner: Captioner, photos: Photo | Iterable[Photo], view: int = 0, batch_size: int = 32
) -> list[RegionMaps]:
    """The self-attention of the captioner's refiner, for each photo.

    Args:
        captioner: the model.
        photos: one, or many.
        view: which of the encoder's grids.
        batch_size: photos at once.

    Raises:
        UserError: the refiner has no view of that number, has no self-attention, or mixes regions in another way, too.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    refiner, layers = _self_attention(captioner, view)
    names = {module: name for name, module in refiner.named_modules()}
    by_photo = []
    with eval_mode(captioner), torch.no_grad():
        gates = tuple(_gates(layer) for layer in layers)
        for batch in batches(photos, batch_size):
            fitted = [captioner.read(photo) for photo in batch]
            with record_self_attention(refiner) as recorded:
                views = captioner.refine(captioner.encode(fitted))
            weights = [recorded[names[layer.product]].float().cpu().numpy() for layer in layers]
            for photo, *of_photo in zip(fitted, *weights, strict=True):
                box = captioner.boxes(photo.box)[view]
                by_photo.append(
                    RegionMaps(tuple(of_photo), gates, views[view].grid, box, photo.box, photo.photo)
                )
    return by_photo


def word_maps(
    captioner: Captioner, photos: Photo | Iterable[Photo], captions: Iterable[Caption] | None = None
) -> list[Caption]:
    """Captions with the self-attention of a Transformer decoder that is fed them, `Caption.self_attention`.

    Args:
        captioner: the model.
        photos, captions: see `replay.sentences`; None = the captions that the model generates.

    Raises:
        UserError: the decoder has no self-attention over words.
        ValueError: photos and captions differ in number.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    decoder = captioner.decoder
    if not has_word_maps(captioner):
        raise UserError(
            f"{type(decoder).__name__} has no self-attention over words: take a model with caption.decoders."
            "TransformerDecoder"
        )
    measured = []
    for batch in sentences(captioner, photos, captions):
        with torch.no_grad(), record_self_attention(decoder) as recorded:
            if batch.words.shape[1]:
                decoder(decoder.project(batch.views), batch.inputs[:, None], batch.lengths[:, None])
        weights = [of_layer[:, 0].float().cpu().numpy() for of_layer in recorded.values()]
        for row, caption in enumerate(batch.captions):
            steps = len(caption.words)
            layers = tuple(of_layer[row, :, :steps, :steps] for of_layer in weights)
            measured.append(replace(caption, self_attention=layers))
    return measured


def has_word_maps(captioner: Captioner) -> bool:
    """Whether the captioner's decoder has self-attention over words, which `word_maps` measures."""
    return any(isinstance(module, ScaledDotProduct) for module in captioner.decoder.modules())


def _self_attention(captioner: Captioner, view: int) -> tuple[Refiner, Sequence[RegionAttention]]:
    """The refiner and its layers of self-attention over one view."""
    refiner = captioner.refiner
    chains = None if refiner is None else refiner.self_attentions()
    if chains is not None and not 0 <= view < len(chains):
        raise UserError(f"view is {view}, and the encoder gives {len(chains)}: they are counted from 0")
    if refiner is None or chains is None or not chains[view]:
        raise UserError(
            f"{'a model without a refiner' if refiner is None else type(refiner).__name__} does not show from which "
            "regions a refined region comes: take a model whose refiner is caption.encoders.SelfAttentionRefiner"
        )
    return refiner, chains[view]


def _gates(layer: RegionAttention) -> np.ndarray:
    """(M,) the heads' gates in evaluation mode."""
    return np.ones(layer.heads, np.float32) if layer.gates is None else layer.gates().float().cpu().numpy()
