"""A recurrent decoder's unroll and step as CUDA graphs: recorded once per shape, then replayed with one launch.

Off unless asked for (`accelerate(..., graphs=True)`): a test replays recorded operations on a CPU, but no GPU has run
this yet. An unroll is recorded, forward and backward, for numbers of words that are multiples of `MULTIPLE`; a step
without gradient, for search, for each (B, K). Each recording is compared with the plain form at once. If it fails or
differs, the decoder takes the plain form from then on, and a line of the log says why.

- **Memory.** A graph reads and writes the same tensors each time, and all graphs of a decoder share their memory. So
  one unroll at a time waits for its backward pass; another one meanwhile, such as that of a second sample, takes the
  plain form. Gradients are copied, because the next replay overwrites them.
- **Random numbers.** A replay draws from the device's generator what the plain form would draw. Recording restores the
  generator. An unroll is recorded when its shape is first seen, so whether it is replayed depends on the batch alone,
  and a resumed run repeats one without a stop.
- **Autocast.** Each weight is converted once, inside the graph: a copy in autocast's cache, which is emptied before and
  after, would be freed.
- **Settings.** What Python decides while recording is fixed. So graphs belong to the plain attributes of the decoder's
  modules, the addresses of its weights and the modes of torch. A decoder with hooks takes the plain form.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from caption.core.tensor_tree import State, TensorTree, leaves, map_tensors, with_leaves
from caption.decoders.base import Trace
from caption.kernels import cuda_graph
from caption.kernels.first_order import require_first_order
from caption.kernels.recording import Recording, fill, nothing
from caption.kernels.unroll import JoinedUnroll

log = logging.getLogger(__name__)

MULTIPLE = 4
"""Unrolls are recorded for numbers of words that are multiples of this."""
MOST = 32
"""Recordings of a decoder's unroll, and of its step; further shapes take the plain form."""


class GraphedUnroll(JoinedUnroll):
    """`JoinedUnroll` whose unroll, and step without gradient, are CUDA graphs."""

    def unroll(self, state: State, embedded: Tensor) -> tuple[tuple[Tensor, ...], Trace, Tensor]:
        plain, words = super().unroll, embedded.shape[2]
        longer = pad(embedded, (0, 0, 0, -words % MULTIPLE))
        outputs = recordings(self).replay("unroll", plain, State(state.shared, state.carried, None), longer)
        if outputs is None:
            return plain(state, embedded)
        return map_tensors(lambda tensor: tensor[:, :, :words], outputs)

    def step(self, state: State, words: Tensor) -> tuple[Tensor, State]:
        plain, outputs = super().step, None

        def run(state: State, words: Tensor) -> TensorTree:
            log_probs, after = plain(state, words)
            if after.shared is not state.shared:
                raise ValueError("it changes what the captions of an image share")
            return log_probs, after.carried, after.trace

        if not torch.is_grad_enabled():
            outputs = recordings(self).replay("step", run, State(state.shared, state.carried, None), words)
        if outputs is None:
            return plain(state, words)
        # The next replay overwrites them.
        log_probs, carried, trace = map_tensors(Tensor.clone, outputs)
        return log_probs, State(state.shared, carried, trace)


class Recordings:
    """The recordings of one decoder.

    Args:
        decoder: whose methods are recorded.
    """

    def __init__(self, decoder: nn.Module) -> None:
        self.decoder = ref(decoder)
        self.recorded: dict[Any, Recording] = {}
        self.inputs: dict[Any, Tensor] = {}
        """The tensors from which graphs read, by their place among the arguments, shape and type."""
        self.pool: Any = None
        self.failed = False
        self.images: Callable[[], Tensor | None] = nothing
        self.settings: tuple[Any, ...] = ()
        self.hooks: list[dict[int, Any]] = []
        """Of the decoder's modules, read once for each batch of images."""
        self.pending: ReferenceType[Any] | None = None
        """The autograd context of the last replay with gradients. While it lives, its backward pass may come."""

    def replay(self, name: str, function: Callable[..., TensorTree], *arguments: TensorTree) -> TensorTree:
        """The result of a method, which the next call may overwrite; None if the plain form is to be taken."""
        decoder: Any = self.decoder()
        tensors = leaves(arguments)
        if not cuda_graph.on_gpu(tensors[0]):
            return None
        # Reading them takes as long as launching a step.
        if name != "step" or self.images() is not tensors[0]:
            self.images, self.settings = ref(tensors[0]), tuple(settings(decoder))
            self.hooks = hooks(decoder)
        context = self.pending and self.pending()
        if self.failed or any(self.hooks) or not tensors[-1].numel() or (context and not context.done):
            return None
        key = (
            name,
            described(arguments),
            torch.is_grad_enabled(),
            decoder.training,
            *modes(tensors[0].device),
            self.settings,
        )
        if key not in self.recorded:
            if sum(of == name for of, *_ in self.recorded) == MOST:
                return None
            try:
                with cuda_graph.device_of(tensors[0]):
                    self.pool = self.pool or cuda_graph.new_pool()
                    self.recorded[key] = Recording(function, arguments, decoder, self.input_like, self.pool)
            except Exception as error:
                self.failed = True
                self.recorded.clear()
                log.warning(
                    "no CUDA graph of a decoder's %s: %s. If CUDA fails from now on, resume without model.graphs",
                    name,
                    error,
                )
                return None
        recording = self.recorded[key]
        return with_leaves(recording.outputs, Replay.apply(self, recording, *tensors, *recording.weights))

    def input_like(self, place: int, tensor: Tensor) -> Tensor:
        """The tensor from which graphs read the argument at a place."""
        learns = torch.is_grad_enabled() and tensor.requires_grad
        key = place, tensor.shape, tensor.dtype, learns
        if key not in self.inputs:
            self.inputs[key] = torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)
            self.inputs[key].requires_grad_(learns)
        return self.inputs[key]


_recordings: WeakKeyDictionary[nn.Module, Recordings] = WeakKeyDictionary()
"""By decoder. Stored on the decoder, they would use its weights in its copies as well."""


def recordings(decoder: nn.Module) -> Recordings:
    """The recordings of a decoder."""
    if decoder not in _recordings:
        _recordings[decoder] = Recordings(decoder)
    return _recordings[decoder]


def took_plain(decoder: nn.Module) -> bool:
    """Whether a decoder should have graphs, and has recorded none."""
    return isinstance(decoder, GraphedUnroll) and not recordings(decoder).recorded


class Replay(torch.autograd.Function):
    """The outputs of a recording."""

    @staticmethod
    def forward(ctx: Any, owner: Recordings, recording: Recording, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        fill(recording.inputs, tensors)
        recording.forward()
        ctx.owner, ctx.recording, ctx.done = owner, recording, False
        owner.pending = ref(ctx) if any(ctx.needs_input_grad) else None
        outputs = [tensor.detach() for tensor in leaves(recording.outputs)]
        ctx.mark_non_differentiable(
            *(tensor for tensor, learns in zip(outputs, recording.learns, strict=True) if not learns)
        )
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        require_first_order("an unroll")
        if ctx.owner.pending is None or ctx.owner.pending() is not ctx:
            raise RuntimeError("another replay has overwritten what this backward pass reads")
        if ctx.done:
            raise RuntimeError(
                "a recorded unroll has one backward pass: take the plain form for retain_graph"
            )
        given = [grad for grad, learns in zip(grads, ctx.recording.learns, strict=True) if learns]
        for own, grad in zip(ctx.recording.errors, given, strict=True):
            own.zero_() if grad is None else own.copy_(grad)
        ctx.recording.backward()
        ctx.done = True
        return None, None, *(None if grad is None else grad.clone() for grad in ctx.recording.gradients)


def hooks(decoder: nn.Module) -> list[dict[int, Any]]:
    """The hooks of a decoder's modules, which a replay would not run."""
    return [
        found
        for part in decoder.modules()
        for found in (
            part._forward_hooks,
            part._forward_pre_hooks,
            part._backward_hooks,
            part._backward_pre_hooks,
        )
    ]


def described(tree: TensorTree) -> tuple[Any, ...]:
    """The structure of a tree, its numbers, and the shapes and types of its tensors."""
    tensors: list[Any] = []
    of: Any = lambda tensor: tensors.append((tensor.shape, tensor.dtype, tensor.requires_grad))  # noqa: E731
    return repr(map_tensors(of, tree)), *tensors


def modes(device: torch.device) -> Iterator[Any]:
    """The modes of torch that decide in which precision it computes."""
    yield torch.get_float32_matmul_precision()
    yield torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type)


def settings(decoder: nn.Module) -> Iterator[Any]:
    """Everything of a decoder but the numbers in tensors that decides what it computes."""
    for part in decoder.modules():
        yield type(part)
        for name, value in vars(part).items():
            if isinstance(value, (bool, int, float, str)):
                yield name, value
        for tensor in (*part._parameters.values(), *part._buffers.values()):
            yield None if tensor is None else (tensor.data_ptr(), tensor.dtype, tensor.requires_grad)
