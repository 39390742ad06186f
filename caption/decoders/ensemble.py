"""An ensemble of decoders: the probabilities of the next word are averaged at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter

import torch
from torch import Tensor, nn

from caption.core.errors import UserError
from caption.core.regions import Views
from caption.core.tensor_tree import State, TensorTree, map_tensors
from caption.decoders.base import Decoder, Memory, Trace, Unrolled
from caption.encoders import Refiner


class EnsembleDecoder(Decoder):
    """p(y[t]) = 1/M Σ_m p_m(y[t]), over M decoders that are fed the same words.

    The weights α are the mean over the members, and so is the gate β if all of them have one. Other records, such as
    the maps of single heads or sampled locations, are left out.

    Args:
        decoders: the members.
        views: for each member, the positions of its views among all views.
        refiners: for each member, the refiner of its views, or None.

    Raises:
        UserError: the list is empty; in use, the members attend to different grids.
    """

    def __init__(
        self,
        decoders: Sequence[Decoder],
        views: Sequence[Sequence[int]],
        refiners: Sequence[Refiner | None],
    ) -> None:
        super().__init__()
        if not decoders:
            raise UserError("an ensemble needs at least one decoder")
        self.decoders: Sequence[Decoder] = nn.ModuleList(decoders)  # type: ignore[assignment]
        self.refiners = nn.ModuleList(refiner or nn.Identity() for refiner in refiners)
        self.views = [list(positions) for positions in views]
        self.query_size = decoders[0].query_size

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        for decoder, refiner, positions in zip(self.decoders, self.refiners, self.views, strict=True):
            sizes = tuple(region_sizes[position] for position in positions)
            if isinstance(refiner, Refiner):
                refiner.build(sizes)
                sizes = refiner.region_sizes
            decoder.build(sizes, vocabulary_size, padding, start)

    def map_grids(self, views: Sequence[tuple[int, int]]) -> dict[str, tuple[int, int]]:
        return {}

    @property
    def map_views(self) -> dict[str, int]:
        return {}

    def project(self, views: Views) -> Memory:
        memories = []
        for decoder, refiner, positions in zip(self.decoders, self.refiners, self.views, strict=True):
            memories.append(decoder.project(refiner(tuple(views[position] for position in positions))))
        grids = dict.fromkeys(memory.views[0].grid for memory in memories)
        if len(grids) > 1:
            names = " and ".join(f"{rows}x{cols}" for rows, cols in grids)
            raise UserError(
                f"the models of an ensemble attend to grids of different sizes, {names}, so that their maps cannot be "
                "averaged: take models with the same grid"
            )
        return Memory(memories[0].views, tuple(memories))

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        members = zip(self.decoders, memory.projected, strict=True)
        states = [decoder.start(projected, hypotheses) for decoder, projected in members]
        return State(*_shared_and_carried(states), trace=None)

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        members = zip(self.decoders, state.shared, state.carried, strict=True)
        log_probs, states = zip(
            *(decoder.step(State(shared, carried, None), words) for decoder, shared, carried in members),
            strict=True,
        )
        after = State(*_shared_and_carried(states), _mean([state.trace for state in states]))
        return _averaged(log_probs), after

    def forward(self, memory: Memory, words: Tensor, lengths: Tensor) -> Unrolled:
        members = zip(self.decoders, memory.projected, strict=True)
        unrolled = [in_order(decoder(projected, words, lengths)) for decoder, projected in members]
        log_probs = [member.logits.float().log_softmax(-1) for member in unrolled]
        return unrolled[0]._replace(
            logits=_averaged(log_probs), trace=_mean([member.trace for member in unrolled])
        )


def _averaged(log_probs: Sequence[Tensor]) -> Tensor:
    """The logarithm of the members' mean probabilities."""
    return torch.stack(list(log_probs)).logsumexp(0) - math.log(len(log_probs))


def in_order(unrolled: Unrolled) -> Unrolled:
    """The steps in the order of their positions; decoders return them in different orders."""
    order = unrolled.positions.argsort()
    return map_tensors(itemgetter(order), unrolled._replace(real=None))._replace(real=unrolled.real)


def _shared_and_carried(states: Sequence[State]) -> tuple[TensorTree, TensorTree]:
    return tuple(state.shared for state in states), tuple(state.carried for state in states)


def _mean(traces: Sequence[Trace]) -> Trace:
    weights = torch.stack([trace.weights for trace in traces]).mean(0)
    gates = [trace.gate for trace in traces if trace.gate is not None]
    return Trace(weights, {}, torch.stack(gates).mean(0) if len(gates) == len(traces) else None)
