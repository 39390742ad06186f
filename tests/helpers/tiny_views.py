"""Regions and a captioner without an encoder."""

from __future__ import annotations

from torch import Tensor, nn

from caption.captioner import Captioner
from caption.core.regions import Regions, Views
from caption.decoders import Decoder
from caption.encoders import Refiner


def one_row(vectors: Tensor, mask: Tensor | None = None) -> Views:
    """Vectors (B, L, D) as one view whose regions stand side by side in one row."""
    return (Regions(vectors, (1, vectors.shape[1]), mask),)


class WithoutEncoder(nn.Module):
    """The part of a captioner that objectives use, around a decoder that is built already."""

    refine, project, unroll = Captioner.refine, Captioner.project, Captioner.unroll

    def __init__(self, decoder: Decoder, refiner: Refiner | None = None) -> None:
        super().__init__()
        self.decoder = decoder
        self.refiner = refiner
