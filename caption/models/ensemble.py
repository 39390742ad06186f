"""Several captioners as one: the mean of their probabilities at every word."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from caption.attention.stochastic import stochastic_parts
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.runtime.trust import make
from caption.decoders import Decoder
from caption.decoders.ensemble import EnsembleDecoder
from caption.encoders import Encoder, Refiner, SeveralEncoders


def ensemble(captioners: Sequence[Captioner]) -> Captioner:
    """A captioner that averages the word probabilities of several captioners, such as models of several seeds.

    It can be used and saved like any other captioner. Its maps are the mean of the members' maps. Members with the same
    frozen encoder share it, and the image is encoded once. It has copies of the decoders, and the members' own
    encoders, which from then on are in evaluation mode and on the first member's device.

    Args:
        captioners: one or more, with the same vocabulary and image transform. The first one's search is used.

    Raises:
        UserError: the members differ in vocabulary or image transform.
    """
    first = captioners[0]
    for member in captioners[1:]:
        if member.vocabulary != first.vocabulary:
            raise UserError(
                "the models of an ensemble must have the same vocabulary: train them on the same captions"
            )
        if member.transform != first.transform:
            raise UserError(
                f"the models of an ensemble must see the same pixels, but their transforms are {first.transform} and "
                f"{member.transform}"
            )
    encoders, views = _encoders(captioners)
    decoders = [make(member.decoder.spec, Decoder) for member in captioners]
    refiners = [None if m.refiner is None else make(m.refiner.spec, Refiner) for m in captioners]
    encoder = encoders[0] if len(encoders) == 1 else SeveralEncoders(encoders)
    ensemble_decoder = EnsembleDecoder(decoders, views, refiners)
    combined = Captioner(encoder, ensemble_decoder, first.vocabulary, first.transform, first.search)
    for member, decoder, refiner in zip(captioners, decoders, refiners, strict=True):
        decoder.load_state_dict(member.decoder.state_dict())
        for part, own in zip(stochastic_parts(decoder), stochastic_parts(member.decoder), strict=True):
            part.at_test = own.at_test  # may have been chosen after loading
        if member.refiner is not None and refiner is not None:
            refiner.load_state_dict(member.refiner.state_dict())
    return combined.to(first.device).eval()


def _encoders(captioners: Sequence[Captioner]) -> tuple[list[Encoder], list[list[int]]]:
    """The different encoders, and for each captioner the positions of its views among all views."""
    encoders: list[Encoder] = []
    positions: list[list[int]] = []
    views: list[list[int]] = []
    for captioner in captioners:
        place = next((n for n, encoder in enumerate(encoders) if _equal(encoder, captioner.encoder)), None)
        if place is None:
            place, start = len(encoders), sum(map(len, positions))
            encoders.append(captioner.encoder)
            positions.append(list(range(start, start + len(captioner.encoder.region_sizes))))
        views.append(positions[place])
    return encoders, views


def _equal(first: Encoder, second: Encoder) -> bool:
    """Whether two encoders compute the same, whatever the source of their weights."""
    arguments = [{**encoder.spec["init_args"], "weights": None} for encoder in (first, second)]
    state, second_state = first.state_dict(), second.state_dict()
    return (
        type(first) is type(second)
        and arguments[0] == arguments[1]
        and state.keys() == second_state.keys()
        and all(torch.equal(tensor, second_state[name]) for name, tensor in state.items())
    )
