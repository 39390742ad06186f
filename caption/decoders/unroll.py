"""Recurrent decoders, and their common unroll for training.

In search, a step is embed, advance, read out. In training, the words of all steps are embedded before the loop over the
steps and read out after it. Captions are sorted so that those still running at step t fill a rectangle in the corner of
(B, K), which shrinks. Only padding inside this rectangle is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import Any

from torch import Tensor

from caption.core.tensor_tree import State, map_tensors
from caption.decoders.base import Decoder, Memory, Trace, Unrolled
from caption.decoders.packing import PackedCaptions


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
        packing = PackedCaptions.sort(words, lengths)
        state = self.start(packing.sort_memory(memory), words.shape[1])
        embedded = self.word_vectors(packing.pack(packing.words))
        outputs, trace, queries = self.unroll(state, embedded, packing)
        logits = self.read_out(packing.real(embedded), *outputs)
        return Unrolled(logits, trace, queries, packing.positions, packing.shape)

    def unroll(
        self, state: State, embedded: Tensor, packing: PackedCaptions
    ) -> tuple[tuple[Tensor, ...], Trace, Tensor]:
        """Advance over the words of all captions.

        Args:
            state: before the first word, of the images in the order of `packing`.
            embedded: the words' vectors, packed.
            packing: how the captions are sorted.

        Returns:
            tensors (N, ...) of the N real steps: the inputs of the read-out, the traces, and the queries.
        """
        outputs, traces, queries = [], [], []
        images = len(packing.words)
        for vectors, (b, k) in zip(embedded.split(packing.sizes), packing.shapes, strict=True):
            # Slice the previous slice: the gradient of a slice is as large as the sliced tensor.
            if b < images:
                state, images = state._replace(shared=map_tensors(itemgetter(slice(b)), state.shared)), b
            carried = map_tensors(itemgetter((slice(b), slice(k))), state.carried)
            queries.append(self.query_of(carried).detach())
            state, output = self.advance(State(state.shared, carried, None), vectors.unflatten(0, (b, k)))
            outputs.append(output)
            traces.append(state.trace)
        return packing.join(outputs), packing.join(traces), packing.join(queries)
