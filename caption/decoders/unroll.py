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
from typing import NamedTuple

import torch
from torch import Tensor

from caption.decoders.base import Decoder, Memory, Trace, Unrolled
from caption.kernels.deferred_linear import DeferredLinear
from caption.kernels.shared_memory import SharedMemory
from caption.tensor_tree import State, TensorTree, combine, map_tensors, select_images


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

    Subclasses define a step in `word_vectors`, `offsets`, `recurrent_weights`, `advance` and `read_out`, and inherit
    `step` and `forward`.
    """

    def word_vectors(self, words: Tensor) -> Tensor:
        """(...) input words -> their vectors Ey (..., E)."""
        raise NotImplementedError

    def offsets(self, embedded: Tensor) -> tuple[Tensor, ...]:
        """Ey (..., E) -> for each of the recurrent weights W, the offset o (..., outputs) in y = o + W x.

        The offsets contain everything that depends on the words alone; training computes them for all steps at once.
        """
        raise NotImplementedError

    def recurrent_weights(self) -> tuple[Tensor, ...]:
        """Weights W (outputs, inputs) used at every step; their gradients are computed once per unroll."""
        raise NotImplementedError

    def advance(
        self, state: State, embedded: Tensor, offsets: tuple[Tensor, ...], weights: tuple[Tensor, ...]
    ) -> Advanced:
        """Compute one step without its read-out.

        Args:
            state: after step t-1.
            embedded: (B, K, E) the word's vector Ey[t-1].
            offsets: (B, K, outputs) for the word, see the method `offsets`.
            weights: see the method `recurrent_weights`.
        """
        raise NotImplementedError

    def read_out(self, embedded: Tensor, outputs: TensorTree) -> Tensor:
        """Ey[t-1] (..., E) and `Advanced.outputs` (..., ...) -> logits (..., V)."""
        raise NotImplementedError

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        embedded = self.word_vectors(words)
        advance = self._advance()
        advanced = advance(self, state, embedded, self.offsets(embedded), self.recurrent_weights())
        logits = self.read_out(embedded, advanced.outputs)
        return logits.float().log_softmax(-1), advanced.state

    def _advance(self) -> Callable[..., Advanced]:
        return compiled_advance(type(self)) if self.compiled else type(self).advance  # type: ignore[arg-type]

    def query_of(self, carried: TensorTree) -> Tensor:
        """(B, K, H) the state h[t-1], taken from `carried`, for `Unrolled.queries`."""
        raise NotImplementedError

    def forward(self, memory: Memory, words: Tensor, lengths: Tensor) -> Unrolled:
        corners = Corners.of(words, lengths)
        embedded = self.word_vectors(corners.pack(corners.words))
        linears = [DeferredLinear(weight) for weight in self.recurrent_weights()]
        weights = tuple(linear.weight for linear in linears)
        offsets = [
            linear.join(offset).split(corners.sizes)
            for linear, offset in zip(linears, self.offsets(embedded), strict=True)
        ]
        vectors = embedded.split(corners.sizes)
        memory = corners.sort(memory)
        state = self.start(memory, words.shape[1])
        shared, advance = SharedMemory(memory), self._advance()
        queries, outputs, traces = [], [], []
        for t, (b, k) in enumerate(corners.shapes):
            carried = map_tensors(itemgetter((slice(b), slice(k))), state.carried)
            before = State(shared.first(b), carried, None)
            step_offsets = tuple(offset[t].unflatten(0, (b, k)) for offset in offsets)
            advanced = advance(self, before, vectors[t].unflatten(0, (b, k)), step_offsets, weights)
            for linear, inputs in zip(linears, advanced.inputs, strict=True):
                linear.record(inputs)
            state = advanced.state
            queries.append(self.query_of(carried).detach())
            outputs.append(advanced.outputs)
            traces.append(state.trace)
        logits = self.read_out(corners.real(embedded), corners.join(outputs))
        trace: Trace = corners.join(traces)
        return Unrolled(
            logits,
            trace,
            corners.join(queries),
            corners.positions,
            (words.shape[0], words.shape[1], words.shape[2]),
        )


class Corners(NamedTuple):
    """Captions sorted so that those still running at step t fill a rectangle: the first b images, k captions each."""

    words: Tensor
    """(B, K, T) int64, sorted: the longest captions of each image first, the images with the longest in front."""
    order: Tensor
    """(B,) int64: index of the image at each place."""
    shapes: list[tuple[int, int]]
    """(b, k) of each step."""
    steps: Tensor | None
    """(N,) int64: indices of the real steps among the packed ones; None = all are real, as with one caption per
    image."""
    positions: Tensor
    """(N,) int64: index of each real step in the flattened (B, K, T) of the unsorted captions."""

    @classmethod
    def of(cls, words: Tensor, lengths: Tensor) -> Corners:
        """Sort captions: words (B, K, T), lengths (B, K)."""
        ranks = lengths.argsort(1, descending=True)
        order = lengths.amax(1).argsort(descending=True, stable=True)
        ranks = ranks[order]
        hypotheses, longest = words.shape[1:]
        words = words[order].gather(1, ranks[..., None].expand_as(words))
        times = torch.arange(longest, device=words.device)
        running = lengths[order].gather(1, ranks)[..., None] > times  # (B, K, T)
        rows = running.any(1).sum(0).tolist()
        columns = running.any(0).sum(0).tolist()
        # Without any caption, one empty step gives the shapes.
        shapes = list(zip(rows, columns, strict=True))[: max(1, sum(b > 0 for b in rows))]
        origins = ((order[:, None] * hypotheses + ranks) * longest)[..., None] + times
        corners = cls(words, order, shapes, None, origins)
        is_real = corners.pack(running)
        real = None if is_real.all() else is_real.nonzero().squeeze(-1)
        corners = corners._replace(steps=real)
        return corners._replace(positions=corners.real(corners.pack(origins)))

    @property
    def sizes(self) -> list[int]:
        """Number of packed steps at each time."""
        return [b * k for b, k in self.shapes]

    def pack(self, sorted_steps: Tensor) -> Tensor:
        """(B, K, T) sorted -> the packed steps of all corners, ordered by time."""
        return torch.cat([sorted_steps[:b, :k, t].flatten() for t, (b, k) in enumerate(self.shapes)])

    def real(self, packed: Tensor) -> Tensor:
        """The real steps among packed ones."""
        return packed if self.steps is None else packed[self.steps]

    def join(self, trees: list[TensorTree]) -> TensorTree:
        """One tree (b, k, ...) per time -> one tree (N, ...) of the real steps."""
        return combine(lambda parts: self.real(torch.cat([part.flatten(0, 1) for part in parts])), trees)

    def sort(self, memory: TensorTree) -> TensorTree:
        """Tensors (B, ...) in the order of the sorted captions, without a copy if they are in order already."""
        if self.order.tolist() == list(range(len(self.order))):
            return map_tensors(Tensor.contiguous, memory)
        return select_images(memory, self.order)


@cache
def compiled_advance(decoder: type[RecurrentDecoder]) -> Callable[..., Advanced]:
    """`advance` of a class of decoders, compiled for any number of images and captions.

    It is shared by all decoders of the class. Stored on one decoder, it would use that decoder's weights in copies,
    too.
    """
    compiled = torch.compile(decoder.advance, dynamic=True)
    fresh = partial(torch.clone, memory_format=torch.contiguous_format)

    def advance(
        decoder: RecurrentDecoder,
        state: State,
        embedded: Tensor,
        offsets: tuple[Tensor, ...],
        weights: tuple[Tensor, ...],
    ) -> Advanced:
        # Copies, because a slice is recompiled for every shape of its base tensor.
        state = state._replace(carried=map_tensors(fresh, state.carried))
        return compiled(decoder, state, fresh(embedded), tuple(map(fresh, offsets)), weights)

    return advance
