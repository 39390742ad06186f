"""Recurrent decoders, and their common unroll for training.

In search, a step is embed, advance, read out. In training, the words of all steps are embedded before the loop over the
steps and read out after it. Every caption runs to the last step of the longest; steps after its end are left out of the
result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from caption.core.tensor_tree import State
from caption.decoders.base import Decoder, Memory, Trace, Unrolled, join_steps, real_positions, select_real


class RecurrentDecoder(Decoder):
    """Base class of decoders whose step needs the state of the previous step.

    Subclasses define a step in `advance` and `read_out`, and inherit `step` and `forward`.
    """

    embed: Any
    """The module that maps words to their vectors, such as `nn.Embedding`; created in `build`."""
    read_out: Callable[..., Tensor]
    """A method of the subclass, `read_out(embedded, *outputs)`: Ey[t-1] (..., E) and the second result of `advance`,
    tensors (..., N) -> logits (..., V)."""

    def word_vectors(self, words: Tensor) -> Tensor:
        """(...) input words -> their vectors Ey (..., E)."""
        return self.embed(words)

    def advance(self, state: State, embedded: Tensor) -> tuple[State, tuple[Tensor, ...]]:
        """Compute one step without its read-out.

        Args:
            state: after step t-1.
            embedded: (B, K, E) the word's vector Ey[t-1].

        Returns:
            the state after step t, whose `trace` is a `Trace`, and the inputs (B, K, ...) of the read-out.
        """
        raise NotImplementedError

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        embedded = self.word_vectors(words)
        state, outputs = self.advance(state, embedded)
        return self.read_out(embedded, *outputs).float().log_softmax(-1), state

    def forward(self, memory: Memory, words: Tensor, lengths: Tensor) -> Unrolled:
        state = self.start(memory, words.shape[1])
        embedded = self.word_vectors(words)
        positions = real_positions(lengths, words)
        steps = embedded, *self.unroll(state, embedded)
        vectors, outputs, trace, queries = select_real(steps, positions)
        logits = self.read_out(vectors, *outputs)
        mask = memory.views[0].mask
        return Unrolled(logits, trace, queries, positions, words.shape, mask)  # type: ignore[arg-type]

    def unroll(self, state: State, embedded: Tensor) -> tuple[tuple[Tensor, ...], Trace, Tensor]:
        """Advance over the words of all captions.

        Args:
            state: before the first word.
            embedded: (B, K, T, E) the words' vectors.

        Returns:
            tensors (B, K, T, ...): the inputs of the read-out, the traces, and the queries.
        """
        columns = []
        for vectors in embedded.unbind(2):
            query = self.query_of(state.carried).detach()
            state, outputs = self.advance(state, vectors)
            columns.append((outputs, state.trace, query))
        return join_steps(columns)
