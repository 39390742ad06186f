"""Unrolls built from padded tensors, with the steps in a shuffled order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from helpers.tiny_views import WithoutEncoder
from torch import Tensor

from caption.core.regions import Views, WeightProperties
from caption.decoders import Decoder, Trace, Unrolled
from caption.objectives import CaptionBatch, Loss, Objective


def unrolled(
    logits: Tensor,
    lengths: Tensor,
    weights: Tensor,
    location: Tensor | None = None,
    log_prob: Tensor | None = None,
    maps: dict[str, Tensor] | None = None,
) -> Unrolled:
    """From logits (B, K, T, V), lengths (B, K), weights (B, K, T, L), location and log_prob (B, K, T), maps
    (B, K, T, ..., L)."""
    real = torch.arange(logits.shape[2]) < lengths[..., None]
    positions = real.flatten().nonzero().squeeze(1)
    positions = positions[torch.randperm(len(positions), generator=torch.Generator().manual_seed(0))]

    def pack(padded: Tensor | None) -> Tensor | None:
        return None if padded is None else padded.flatten(0, 2)[positions]

    trace = Trace(
        pack(weights),
        {name: pack(values) for name, values in (maps or {}).items()},
        location=pack(location),
        log_prob=pack(log_prob),
    )
    images, hypotheses, steps = logits.shape[:3]
    queries = torch.zeros(len(positions), 1)
    return Unrolled(pack(logits), trace, queries, positions, (images, hypotheses, steps))


def logits_of(probabilities: Sequence[Sequence[Sequence[float]]], words: int = 3) -> tuple[Tensor, Tensor]:
    """Logits (B, K, T, V) under which target word 1 has the given probability, and those targets (B, K, T)."""
    chosen = torch.tensor(probabilities)
    logits = ((1 - chosen) / (words - 1)).log()[..., None].repeat(1, 1, 1, words)
    logits[..., 1] = chosen.log()
    return logits + 0.7, torch.ones(chosen.shape, dtype=torch.long)  # + 0.7: logits need not be normalised


def uniform(lengths: Tensor, steps: int, regions: int = 2) -> Tensor:
    """Weights (B, K, T, L), all equal."""
    return torch.full((*lengths.shape, steps, regions), 1 / regions)


class HandDecoder(Decoder):
    """A decoder that returns a given unroll and declares given properties.

    Its attention's penalty is the mean square of the map "heads", if there is one.
    """

    properties = WeightProperties()

    def __init__(self, unrolled: Unrolled, properties: WeightProperties | None = None) -> None:
        super().__init__()
        self.unrolled = unrolled
        self.properties = properties or WeightProperties()

    def penalty(self, maps: Mapping[str, Tensor]) -> Tensor | None:
        return maps["heads"].square().mean() if "heads" in maps else None

    def project(self, views: Views) -> None:
        return None

    def forward(self, memory: None, words: Tensor, lengths: Tensor) -> Unrolled:
        return self.unrolled


def loss_of(objective: Objective, unrolled: Unrolled, targets: Tensor) -> Loss:
    """The objective's loss of a given unroll."""
    lengths = unrolled.unpack(torch.ones_like(unrolled.positions)).sum(-1)
    return objective(WithoutEncoder(HandDecoder(unrolled)), (), CaptionBatch(targets, targets, lengths))
