"""The paper's decoder, whose words may carry what was looked at when they were said.

A word such as "<thing>" says nothing by itself: it stands for whatever the decoder looked at when it said it. Lu et al.
2018, "Neural Baby Talk", sections 3.2 and 3.3, feed such a visual word back with the features of the region that a
detector has grounded it in. Here it is fed back with the average that attention took.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from caption.attention.base import Query
from caption.decoders.base import Memory, Trace
from caption.decoders.cell_decoder import CellState
from caption.decoders.show_attend_and_tell import Outputs, ShowAttendAndTellDecoder
from caption.decoders.unroll import Advanced
from caption.kernels.linear import Linear
from caption.tensor_tree import State


class SeenWordDecoder(ShowAttendAndTellDecoder):
    """Joins to a word y[t-1] what was looked at for it, the average before the gate Σ_i α[t-1]_i a_i:

        z'[t] = β[t] ⊙ z[t] + s(y[t-1]) U Σ_i α[t-1]_i a_i

    takes the place of the context in the cell and in the read-out. s is a learned number for each word, 0 at first, so
    that a decoder without it is the start of one with it. Arguments are those of `ShowAttendAndTellDecoder`.
    """

    def build(self, region_sizes: tuple[int, ...], vocabulary_size: int, padding: int, start: int) -> None:
        super().build(region_sizes, vocabulary_size, padding, start)
        self.shares = nn.Embedding(vocabulary_size, 1)
        nn.init.zeros_(self.shares.weight)
        self.from_seen = Linear(self.attention.context_size, self.attention.context_size, bias=False)

    def start(self, memory: Memory, hypotheses: int = 1) -> State:
        state = super().start(memory, hypotheses)
        hidden, cell, attending = state.carried
        nothing = hidden.new_zeros(*hidden.shape[:2], self.attention.context_size)
        return state._replace(carried=CellState(hidden, cell, (attending, nothing)))

    def word_vectors(self, words: Tensor) -> Tensor:
        """(...) -> (..., E + 1): Ey, and s."""
        return torch.cat((super().word_vectors(words), self.shares(words)), -1)

    def offsets(self, embedded: Tensor) -> tuple[Tensor, ...]:
        return super().offsets(embedded[..., :-1])

    def advance(
        self, state: State, embedded: Tensor, offsets: tuple[Tensor, ...], weights: tuple[Tensor, ...]
    ) -> Advanced:
        hidden, cell, (attending, seen) = state.carried
        query = Query(hidden, cell, embedded[..., :-1])
        attended = self.attention(query, state.shared.projected[0], attending)
        context, beta = attended.context, None
        if self.gate is not None:
            gate = self.gate(hidden)
            context = gate * context
            beta = gate.mean(-1)
        context = context + embedded[..., -1:] * self.from_seen(seen)
        hidden, cell, inputs = self.cell(hidden, cell, context, offsets, weights)
        carried = CellState(hidden, cell, (attended.state, attended.context))
        after = State(state.shared, carried, Trace.of(attended, beta))
        return Advanced(after, Outputs(hidden, context), inputs)

    def read_out(self, embedded: Tensor, outputs: Outputs) -> Tensor:
        return super().read_out(embedded[..., :-1], outputs)
