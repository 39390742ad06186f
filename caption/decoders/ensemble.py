"""An ensemble of decoders: their next words' probabilities are averaged at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from caption.decoders.base import Decoder, Memory, Trace, Unrolled
from caption.encoders.refiners import Refiner
from caption.errors import UserError
from caption.parts import check_choice
from caption.regions import Views
from caption.tensor_tree import State

Average = Literal["probabilities", "log_probabilities"]


class EnsembleDecoder(Decoder):
    """p(y[t]) = 1/M Σ_m p_m(y[t]), or ∝ exp(1/M Σ_m log p_m(y[t])), over M decoders fed the same words.

    The weights α are the mean of the members', and so is the gate β where all have one. What else they record, such as
    the maps of single heads or sampled locations, is left out.

    Args:
        decoders: the members.
        views: for each member, the positions of its views among all views.
        refiners: for each member, the refiner of its views, or None.
        average: of "probabilities" or "log_probabilities".

    Raises:
        UserError: there are no members; in use, the members attend to different grids.
    """

    def __init__(
        self,
        decoders: Sequence[Decoder],
        views: Sequence[Sequence[int]],
        refiners: Sequence[Refiner | None],
        average: Average = "probabilities",
    ) -> None:
        super().__init__()
        check_choice("average", average, ("probabilities", "log_probabilities"))
        if not decoders:
            raise UserError("an ensemble needs at least one decoder")
        self.decoders: Sequence[Decoder] = nn.ModuleList(decoders)  # type: ignore[assignment]
        self.refiners = nn.ModuleList(nn.Identity() if each is None else each for each in refiners)
        self.views = [list(each) for each in views]
        self.average = average
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

    def project(self, views: Views) -> Memory:
        memories = []
        for decoder, refiner, positions in zip(self.decoders, self.refiners, self.views, strict=True):
            memories.append(decoder.project(refiner(tuple(views[position] for position in positions))))
        grids = dict.fromkeys(memory.views[0].grid for memory in memories)
        if len(grids) > 1:
            names = " and ".join(f"{rows}x{cols}" for rows, cols in grids)
            raise UserError(f"the models of an ensemble attend to grids of {names}, whose maps have no mean")
        return Memory(memories[0].views, tuple(memories))

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        starts = [
            decoder.start(each, hypotheses)
            for decoder, each in zip(self.decoders, memory.projected, strict=True)
        ]
        return State(
            tuple(each.shared for each in starts), tuple(each.carried for each in starts), trace=None
        )

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        members = zip(self.decoders, state.shared, state.carried, strict=True)
        log_probs, states = zip(
            *(decoder.step(State(shared, carried, None), words) for decoder, shared, carried in members),
            strict=True,
        )
        after = State(
            tuple(each.shared for each in states),
            tuple(each.carried for each in states),
            _mean([each.trace for each in states]),
        )
        return self._averaged(log_probs), after

    def forward(self, memory: Memory, words: Tensor, lengths: Tensor) -> Unrolled:
        unrolled = [
            decoder(each, words, lengths)
            for decoder, each in zip(self.decoders, memory.projected, strict=True)
        ]
        first = unrolled[0]
        # The order of the steps is each decoder's own.
        orders = [each.positions.argsort() for each in unrolled]
        log_probs = [
            each.logits.float().log_softmax(-1)[order] for each, order in zip(unrolled, orders, strict=True)
        ]
        traces = [
            each.trace._replace(
                weights=each.trace.weights[order],
                gate=None if each.trace.gate is None else each.trace.gate[order],
            )
            for each, order in zip(unrolled, orders, strict=True)
        ]
        return Unrolled(
            self._averaged(log_probs),
            _mean(traces),
            first.queries[orders[0]],
            first.positions[orders[0]],
            first.shape,
        )

    def _averaged(self, log_probs: Sequence[Tensor]) -> Tensor:
        together = torch.stack(list(log_probs))
        if self.average == "probabilities":
            return together.logsumexp(0) - math.log(len(together))
        return together.mean(0).log_softmax(-1)


def _mean(traces: Sequence[Trace]) -> Trace:
    weights = torch.stack([trace.weights for trace in traces]).mean(0)
    gates = [trace.gate for trace in traces if trace.gate is not None]
    return Trace(weights, {}, torch.stack(gates).mean(0) if len(gates) == len(traces) else None)
