"""A decoder's method for arguments of one shape: recorded forward and backward, and compared with the plain form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from weakref import ref

import torch
from torch import Tensor, nn
from torch.nn.utils.stateless import _reparametrize_module

from caption.core.tensor_tree import TensorTree, leaves, map_tensors, with_leaves
from caption.kernels import cuda_graph

TOLERANCE = 1e-2
"""Largest ‖recorded − plain‖ / ‖plain‖ of an output or gradient; sums may be in another order, also in bf16."""


class Recording:
    """The forward and backward pass of a method for arguments of one shape.

    Args:
        function: the method.
        arguments: with which it is recorded.
        decoder: whose method it is.
        input_like: gives the tensor from which a graph reads the argument at a place.
        pool: what it shares with the decoder's other graphs.

    Raises:
        ValueError: it cannot be recorded, or differs from the plain form.
    """

    def __init__(
        self,
        function: Callable[..., TensorTree],
        arguments: Sequence[TensorTree],
        decoder: nn.Module,
        input_like: Callable[[int, Tensor], Tensor],
        pool: cuda_graph.Pool,
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
            # The backward pass is outside of autocast, as in training.
            torch.autocast(device.type, enabled=False),
        ):
            self.inputs = [input_like(place, tensor) for place, tensor in enumerate(tensors)]
            fill(self.inputs, tensors)
            own = with_leaves(arguments, self.inputs)
            learned = [tensor for tensor in self.inputs if tensor.requires_grad]
            learned += [alias for alias in aliases.values() if grad and alias.requires_grad]

            def run() -> TensorTree:
                with torch.autocast(device.type, low[1], low[0]), own_casts():
                    return function(*own)

            try:
                cuda_graph.warm_up(lambda: gradients(run(), learned))
                self.forward, result = cuda_graph.record(run, pool)
                self.learns = [tensor.requires_grad for tensor in leaves(result)]
                self.errors = [torch.randn_like(tensor) for tensor in leaves(result) if tensor.requires_grad]
                """The gradients of the outputs that have one."""
                self.backward, found = nothing, [None] * len(learned)
                if self.errors:
                    self.backward, found = cuda_graph.record(
                        lambda: gradients(result, learned, self.errors), pool
                    )
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


@contextmanager
def own_casts() -> Iterator[None]:
    """Context in which each weight is converted once, and at whose end autocast forgets the copies: a graph that reads
    one from outside of it, or whose copies are read outside, would read memory that has been freed."""
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


def same_draws(device: torch.device) -> AbstractContextManager[None]:
    """Context at whose end the random numbers are again those of its beginning."""
    return torch.random.fork_rng([device.index] if device.type == "cuda" else [])
