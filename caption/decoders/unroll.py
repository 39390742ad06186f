"""Recurrent decoders, and their common unroll for training.

In search, a step is embed, advance, read out. In training, everything that does not depend on the previous step is
computed once for all steps: the words' vectors and their part of the gates before the loop, the read-out after it.
Captions are sorted so that those still running at step t fill a rectangle in the corner of (B, K), which shrinks. Only
padding inside this rectangle is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from operator import itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from caption.core.tensor_tree import State, TensorTree, map_tensors
from caption.decoders.base import Decoder, Memory, Trace, Unrolled
from caption.decoders.cells import Recurrence
from caption.decoders.packing import PackedCaptions
from caption.kernels.deferred_linear import DeferredLinear


class Advanced(NamedTuple):
    """The result of a step before the read-out."""

    state: State
    """The state after the step; its `trace` is a `Trace`."""
    outputs: TensorTree
    """Tensors (B, K, ...), the read-out's inputs other than the word's vector: h[t], z[t]."""
    inputs: tuple[Tensor, ...]
    """(B, K, ...) the input of each recurrent weight."""


class RecurrentDecoder(Decoder):
    """Base class of decoders whose step needs the state of the previous step.

    Subclasses define a step in `offsets`, `recurrent_weights`, `advance` and `read_out`, and inherit `step` and
    `forward`.
    """

    embed: Any
    """The module that maps words to their vectors, such as `nn.Embedding`; created in `build`."""

    def word_vectors(self, words: Tensor) -> Tensor:
        """(...) input words -> their vectors Ey (..., E)."""
        return self.embed(words)

    def offsets(self, embedded: Tensor) -> tuple[Tensor, ...]:
        """Ey (..., E) -> for each of the recurrent weights W, the offset o (..., outputs) in y = o + W x.

        The offsets contain everything that depends on the words alone; training computes them for all steps at once.
        """
        raise NotImplementedError

    def recurrent_weights(self) -> tuple[Tensor, ...]:
        """Weights W (outputs, inputs) used at every step; their gradients are computed once per unroll."""
        raise NotImplementedError

    def advance(self, state: State, embedded: Tensor, recurrence: Recurrence) -> Advanced:
        """Compute one step without its read-out.

        Args:
            state: after step t-1.
            embedded: (B, K, E) the word's vector Ey[t-1].
            recurrence: of the methods `offsets`, for the word, and `recurrent_weights`.
        """
        raise NotImplementedError

    def read_out(self, embedded: Tensor, outputs: TensorTree) -> Tensor:
        """Ey[t-1] (..., E) and `Advanced.outputs` (..., ...) -> logits (..., V)."""
        raise NotImplementedError

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        embedded = self.word_vectors(words)
        recurrence = Recurrence(self.offsets(embedded), self.recurrent_weights())
        advanced = self._advance()(self, state, embedded, recurrence)
        logits = self.read_out(embedded, advanced.outputs)
        return logits.float().log_softmax(-1), advanced.state

    def _advance(self) -> Callable[..., Advanced]:
        return compiled_advance(type(self)) if self.compiled else type(self).advance  # type: ignore[arg-type]

    def query_of(self, carried: TensorTree) -> Tensor:
        """(B, K, H) the state h[t-1], taken from `carried`, for `Unrolled.queries`."""
        return carried.hidden

    def forward(self, memory: Memory, words: Tensor, lengths: Tensor) -> Unrolled:
        packing = PackedCaptions.sort(words, lengths)
        embedded = self.word_vectors(packing.pack(packing.words))
        linears = [DeferredLinear(weight) for weight in self.recurrent_weights()]
        weights = tuple(linear.weight for linear in linears)
        offsets = [
            linear.join(offset).split(packing.sizes)
            for linear, offset in zip(linears, self.offsets(embedded), strict=True)
        ]
        vectors = embedded.split(packing.sizes)
        memory = packing.sort_memory(memory)
        state = self.start(memory, words.shape[1])
        advance = self._advance()
        queries, outputs, traces = [], [], []
        images = len(words)
        for t, (b, k) in enumerate(packing.shapes):
            # A slice of the previous slice: the gradient of a slice is as large as what it was taken from.
            if b < images:
                memory, images = map_tensors(itemgetter(slice(b)), memory), b
            carried = map_tensors(itemgetter((slice(b), slice(k))), state.carried)
            before = State(memory, carried, None)
            recurrence = Recurrence(tuple(offset[t].unflatten(0, (b, k)) for offset in offsets), weights)
            advanced = advance(self, before, vectors[t].unflatten(0, (b, k)), recurrence)
            for linear, inputs in zip(linears, advanced.inputs, strict=True):
                linear.record(inputs)
            state = advanced.state
            queries.append(self.query_of(carried).detach())
            outputs.append(advanced.outputs)
            traces.append(state.trace)
        logits = self.read_out(packing.real(embedded), packing.join(outputs))
        trace: Trace = packing.join(traces)
        return Unrolled(
            logits,
            trace,
            packing.join(queries),
            packing.positions,
            (words.shape[0], words.shape[1], words.shape[2]),
        )


@cache
def compiled_advance(decoder: type[RecurrentDecoder]) -> Callable[..., Advanced]:
    """`advance` of a class of decoders, compiled for any number of images and captions.

    It is shared by all decoders of the class. Stored on one decoder, it would use that decoder's weights in copies,
    too.
    """
    compiled = torch.compile(decoder.advance, dynamic=True)
    fresh = partial(torch.clone, memory_format=torch.contiguous_format)

    def advance(
        decoder: RecurrentDecoder, state: State, embedded: Tensor, recurrence: Recurrence
    ) -> Advanced:
        # Copies, because a slice is recompiled for every shape of its base tensor.
        state = state._replace(carried=map_tensors(fresh, state.carried))
        offsets = tuple(map(fresh, recurrence.offsets))
        return compiled(decoder, state, fresh(embedded), recurrence._replace(offsets=offsets))

    return advance
