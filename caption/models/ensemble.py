"""Several captioners as one: the mean of their probabilities at every word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from caption.captioner import Captioner
from caption.decoders import Decoder
from caption.decoders.ensemble import Average, EnsembleDecoder
from caption.encoders import Encoder, SeveralEncoders
from caption.encoders.refiners import Refiner
from caption.errors import UserError
from caption.parts import make


def ensemble(captioners: Sequence[Captioner], average: Average = "probabilities") -> Captioner:
    """A captioner that averages others, such as models of several seeds.

    It is a captioner like any other: it describes, can be saved, and its maps are the mean of the members' maps.
    Members with the same frozen encoder share it, and the image is encoded once.

    Args:
        captioners: one or more, with the same vocabulary and image transform. The first one's search is used.
        average: of "probabilities" or "log_probabilities", see `EnsembleDecoder`.

    Raises:
        UserError: the members differ in vocabulary or image transform.
    """
    first = captioners[0]
    for other in captioners[1:]:
        if other.vocabulary != first.vocabulary:
            raise UserError(
                "the models of an ensemble must have one vocabulary: train them on the same captions"
            )
        if other.transform != first.transform:
            raise UserError(
                f"the models of an ensemble must see the same pixels, but their transforms are {first.transform} and "
                f"{other.transform}"
            )
    encoders, views = _encoders(captioners)
    decoders = [make(each.decoder.spec, Decoder) for each in captioners]
    refiners = [None if each.refiner is None else make(each.refiner.spec, Refiner) for each in captioners]
    encoder = encoders[0] if len(encoders) == 1 else SeveralEncoders(encoders)
    decoder = EnsembleDecoder(decoders, views, refiners, average)
    made = Captioner(encoder, decoder, first.vocabulary, first.transform, first.search)
    for each, member, refiner in zip(captioners, decoder.decoders, decoder.refiners, strict=True):
        member.load_state_dict(each.decoder.state_dict())
        if each.refiner is not None:
            refiner.load_state_dict(each.refiner.state_dict())
    return made.to(first.device).eval()


def _encoders(captioners: Sequence[Captioner]) -> tuple[list[Encoder], list[list[int]]]:
    """The different encoders, and for each captioner the positions of its views among all."""
    encoders: list[Encoder] = []
    positions: list[list[int]] = []
    views: list[list[int]] = []
    for captioner in captioners:
        found = next((n for n, each in enumerate(encoders) if _equal(each, captioner.encoder)), None)
        if found is None:
            found, start = len(encoders), sum(map(len, positions))
            encoders.append(captioner.encoder)
            positions.append(list(range(start, start + len(captioner.encoder.region_sizes))))
        views.append(positions[found])
    return encoders, views


def _equal(one: Encoder, other: Encoder) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return (
        _without_weights(one.spec) == _without_weights(other.spec)
        and first.keys() == second.keys()
        and all(torch.equal(tensor, second[name]) for name, tensor in first.items())
    )


def _without_weights(spec: dict[str, Any]) -> dict[str, Any]:
    """A spec without the place that the weights came from."""
    return {
        **spec,
        "init_args": {name: each for name, each in spec["init_args"].items() if name != "weights"},
    }
