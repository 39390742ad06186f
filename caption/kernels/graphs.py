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
- **Autocast.** Weights are converted inside the graph, because a copy in autocast's cache would be freed.
- **Settings.** What Python decides while recording is fixed. So graphs belong to the plain attributes of the decoder's
  modules, the addresses of its weights and the modes of torch. A decoder with hooks takes the plain form.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, ref

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.nn.utils.stateless import _reparametrize_module

from caption.core.tensor_tree import State, TensorTree, leaves, map_tensors, with_leaves
from caption.decoders.base import Trace
from caption.kernels.first_order import require_first_order
from caption.kernels.unroll import JoinedUnroll

log = logging.getLogger(__name__)

MULTIPLE = 4
"""Unrolls are recorded for numbers of words that are multiples of this."""
MOST = 32
"""Recordings of a decoder's unroll, and of its step; further shapes take the plain form."""
TOLERANCE = 1e-2
"""Largest ‖recorded − plain‖ / ‖plain‖ of an output or gradient; sums may be in another order, also in bf16."""


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
        if not on_gpu(tensors[0]):
            return None
        if (
            name != "step" or self.images() is not tensors[0]
        ):  # reading them takes as long as launching a step
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
                with device_of(tensors[0]):
                    self.pool = self.pool or new_pool()
                    self.recorded[key] = Recording(function, arguments, decoder, self)
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


class Recording:
    """The forward and backward pass of a method for arguments of one shape."""

    def __init__(
        self,
        function: Callable[..., TensorTree],
        arguments: Sequence[TensorTree],
        decoder: nn.Module,
        owner: Recordings,
    ) -> None:
        grad, tensors = torch.is_grad_enabled(), leaves(arguments)
        device = tensors[0].device
        low = torch.is_autocast_enabled(device.type), torch.get_autocast_dtype(device.type)
        if any(isinstance(part, nn.RNNBase) for part in decoder.modules()):
            raise ValueError("it has a module such as nn.LSTM, which moves the aliases of its weights")
        before = [buffer.clone() for buffer in decoder.buffers()]
        weights = dict(decoder.named_parameters())
        # Parameters of its own in the same memory: autograd waits for the streams of other graphs of a parameter.
        aliases: dict[str, Tensor] = {
            name: nn.Parameter(weight.detach(), weight.requires_grad) for name, weight in weights.items()
        }
        aliased = _reparametrize_module(decoder, aliases, tie_weights=True)
        # Tensors made in inference mode could not be written outside of it.
        with (
            torch.inference_mode(False),
            torch.set_grad_enabled(grad),
            same_draws(device),
            aliased,
            torch.autocast(
                device.type, enabled=False
            ),  # as in training, where the backward pass is outside of it
        ):
            self.inputs = [owner.input_like(place, tensor) for place, tensor in enumerate(tensors)]
            fill(self.inputs, tensors)
            own = with_leaves(arguments, self.inputs)
            learned = [tensor for tensor in self.inputs if tensor.requires_grad]
            learned += [alias for alias in aliases.values() if grad and alias.requires_grad]

            def run() -> TensorTree:
                with torch.autocast(device.type, low[1], low[0], cache_enabled=False):
                    return function(*own)

            try:
                warm_up(lambda: gradients(run(), learned))
                self.forward, result = record(run, owner.pool)
                self.learns = [tensor.requires_grad for tensor in leaves(result)]
                self.errors = [torch.randn_like(tensor) for tensor in leaves(result) if tensor.requires_grad]
                """The gradients of the outputs that have one."""
                self.backward, found = nothing, [None] * len(learned)
                if self.errors:
                    self.backward, found = record(lambda: gradients(result, learned, self.errors), owner.pool)
                self.outputs = map_tensors(Tensor.detach, result)
                by_tensor = dict(zip(map(id, learned), found, strict=True))
                learning = [name for name, alias in aliases.items() if by_tensor.get(id(alias)) is not None]
                self.weights = [weights[name] for name in learning]
                sources = *self.inputs, *(aliases[name] for name in learning)
                self.gradients = [by_tensor.get(id(tensor)) for tensor in sources]
                """Those of the inputs and weights; None where there is none."""
                given = *self.inputs, *weights.values(), *decoder.buffers()
                self._compare([*leaves(self.outputs), *found], run, learned, given)
            finally:
                for buffer, value in zip(decoder.buffers(), before, strict=True):
                    if not torch.equal(buffer, value):  # those of others may be saved for a backward pass
                        buffer.copy_(value)

    def _compare(
        self,
        found: Sequence[Tensor | None],
        plain: Callable[[], TensorTree],
        learned: Sequence[Tensor],
        given: Sequence[Tensor],
    ) -> None:
        """Raise a `ValueError` if a replay differs from the method itself with the same random numbers."""
        device = given[0].device
        with same_draws(device):
            result = plain()
            expected = [*leaves(result), *gradients(result, learned, self.errors)]
        # A graph that has recorded nothing would leave what recording computed.
        filled = memory_of(found, given)
        before = [memory.clone() for memory in filled]
        for memory in filled:
            memory.fill_(torch.nan)
        with same_draws(device):
            self.forward()
            self.backward()
        try:
            for actual, true in zip(found, expected, strict=True):
                if actual is None or true is None:
                    if actual is not true:
                        raise ValueError("it has gradients of other weights than the plain form")
                    continue
                actual, true = actual.detach().double(), true.detach().double()
                unlike = actual.isnan() != true.isnan()
                error, size = (float(tensor.nan_to_num().norm()) for tensor in (actual - true, true))
                if unlike.any() or not error <= TOLERANCE * size + 1e-12:
                    raise ValueError(f"it differs from the plain form by {error:.2g} of {size:.2g}")
        except ValueError:
            for memory, values in zip(filled, before, strict=True):
                memory.copy_(values)  # it may be a constant of the decoder
            raise


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


def fill(inputs: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """Copy arguments to where graphs read them. What a search passes at each step is copied once."""
    for own, tensor in zip(inputs, tensors, strict=False):
        version = None if tensor.is_inference() else tensor._version
        source, copied = getattr(own, "copied", (nothing, None))
        if version is None or source() is not tensor or copied != version:
            own.detach().copy_(tensor)
            own.copied = ref(tensor), version  # type: ignore[attr-defined]


def nothing() -> None:
    pass


def memory_of(found: Sequence[Tensor | None], given: Sequence[Tensor]) -> list[Tensor]:
    """The memory of floating-point tensors as flat tensors, without that which they share with those that are given."""
    shared = {tensor.untyped_storage().data_ptr() for tensor in given}
    own = {
        tensor.untyped_storage().data_ptr(): tensor
        for tensor in found
        if tensor is not None and tensor.is_floating_point()
    }
    return [
        torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor.untyped_storage())
        for address, tensor in own.items()
        if address not in shared
    ]


def gradients(
    result: TensorTree, of: Sequence[Tensor], errors: Sequence[Tensor] | None = None
) -> Sequence[Tensor | None]:
    """The gradients of tensors, given those of the tensors in `result` that have one; by default ones."""
    outputs = [tensor for tensor in leaves(result) if tensor.requires_grad]
    if not outputs:
        return [None] * len(of)
    given = errors or [torch.ones_like(tensor) for tensor in outputs]
    return torch.autograd.grad(outputs, of, given, allow_unused=True)


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


def same_draws(device: torch.device) -> AbstractContextManager[None]:
    """Context at whose end the random numbers are again those of its beginning."""
    return torch.random.fork_rng([device.index] if device.type == "cuda" else [])


# -- the operations of torch.cuda ----------------------------------------------------------------------------------


class Pool(NamedTuple):
    """What all graphs of a decoder share: their memory, and the stream on which they are recorded."""

    memory: Any
    stream: torch.cuda.Stream


def on_gpu(tensor: Tensor) -> bool:
    """Whether a tensor is where graphs are recorded; elsewhere a graph would record nothing."""
    return tensor.is_cuda


def device_of(tensor: Tensor) -> AbstractContextManager[Any]:
    """Context in which the GPU of a tensor is the current one."""
    return torch.cuda.device(tensor.device)


def new_pool() -> Pool:
    """Memory and a stream of the current GPU."""
    return Pool(torch.cuda.graph_pool_handle(), torch.cuda.Stream())


def warm_up(run: Callable[[], Any]) -> None:
    """Call a function, as libraries prepare themselves when they are first used.

    Raises:
        RuntimeError: it waits for the GPU. A recording that fails inside CUDA may leave it unusable.
    """
    stream, before = torch.cuda.Stream(), torch.cuda.get_sync_debug_mode()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
        torch.cuda.set_sync_debug_mode("error")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    torch.cuda.current_stream().wait_stream(stream)


def record(run: Callable[[], Any], pool: Pool) -> tuple[Callable[[], None], Any]:
    """Record what a function does on the GPU, without doing it.

    Returns:
        a function that does it, and the recorded function's result, whose tensors it fills.
    """
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        # Other threads, which load data, may allocate memory meanwhile.
        with torch.cuda.graph(graph, pool.memory, pool.stream, capture_error_mode="thread_local"):
            result = run()
    finally:
        torch.cuda.set_stream(stream)  # a recording that fails leaves its own
    return graph.replay, result
