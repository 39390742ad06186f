"""The unroll of a recurrent decoder, with the words' part of the gates and large weights' gradients computed once.

Plain autograd computes a gradient as large as the weight W at every step and sums them, which for the LSTM's weights
takes longer than the steps themselves. Here dW = Σ_t dy[t] x[t]ᵀ is one product for all steps, and the words' part of
the gates is one product before them. Both are exact, but cannot be differentiated again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from caption.core.tensor_tree import State
from caption.decoders.adaptive import AdaptiveDecoder
from caption.decoders.base import Trace
from caption.decoders.cell_decoder import CellDecoder
from caption.decoders.cells import GRUCell, LSTMCell, ResetBeforeGRUCell
from caption.decoders.show_and_tell import ShowAndTellDecoder
from caption.decoders.show_attend_and_tell import ShowAttendAndTellDecoder
from caption.decoders.top_down import TopDownDecoder
from caption.decoders.unroll import RecurrentDecoder
from caption.kernels.exchange import plain_class
from caption.kernels.first_order import require_first_order
from caption.kernels.linear import linear

LARGE = 1 << 16
"""Size of a weight from which computing its gradient once saves time."""
CELL_DECODERS = (ShowAttendAndTellDecoder, ShowAndTellDecoder, AdaptiveDecoder)
CELLS = (LSTMCell, GRUCell, ResetBeforeGRUCell)
"""Decoders and cells whose step is known to use `from_word` once, for the word."""


class JoinedUnroll(RecurrentDecoder):
    """`RecurrentDecoder` whose unroll computes the words' part of the gates and large weights' gradients once."""

    def unroll(self, state: State, embedded: Tensor) -> tuple[tuple[Tensor, ...], Trace, Tensor]:
        with joined(self, embedded, lambda parts: parts.unbind(2)):
            return super().unroll(state, embedded)


@contextmanager
def joined(
    decoder: RecurrentDecoder, embedded: Tensor, split: Callable[[Tensor], Sequence[Tensor]]
) -> Iterator[None]:
    """Context in which the steps of an unroll take the words' part of the gates from one product, and leave the
    gradients of large weights to another.

    Args:
        decoder: whose `advance` is called once for each step, in order.
        embedded: (..., E) the words' vectors of all steps.
        split: (..., G) the parts of all steps -> those of each step.
    """
    with ExitStack() as stack:
        layer = layer_of_words(decoder)
        if layer is not None:
            dropped: Tensor = decoder.dropout(embedded)  # type: ignore[operator]
            parts = iter(split(layer(dropped)))
            stack.enter_context(forward(layer, lambda x: next(parts).view(*x.shape[:-1], -1)))
        if torch.is_grad_enabled():
            for module in decoder.modules():
                if module is not layer and is_large(module):
                    stack.enter_context(forward(module, DeferredLinear(module)))  # type: ignore[arg-type]
        yield


def layer_of_words(decoder: RecurrentDecoder) -> nn.Linear | None:
    """The layer that a decoder's step applies once, to the word's vector after dropout; None if another package has
    written the step or the cell, which may use the layer otherwise."""
    step = type(decoder).advance
    if step is TopDownDecoder.advance:
        return decoder.attention_gates_from_word  # type: ignore[return-value]
    if step not in [own.advance for own in CELL_DECODERS]:
        return None
    assert isinstance(decoder, CellDecoder)
    return decoder.cell.from_word if type(decoder.cell) in CELLS else None


def is_large(layer: nn.Module) -> bool:
    """Whether a module is torch's own affine layer, with a large weight that is a parameter and learns."""
    if plain_class(type(layer)) is not nn.Linear or not isinstance(layer.weight, nn.Parameter):
        return False
    return layer.weight.requires_grad and layer.weight.numel() >= LARGE


@contextmanager
def forward(module: nn.Module, function: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Context in which a module's `forward` is another function; its hooks still run."""
    module.forward = function
    try:
        yield
    finally:
        del module.forward


class DeferredLinear:
    """y[t] = W x[t] + b at each step of an unroll, with dW = Σ_t dy[t] x[t]ᵀ and db = Σ_t dy[t] computed once.

    W and b pass through `Gather` before the steps. The backward pass of a step records x[t] and dy[t] and returns no
    gradient of W; autograd runs that of `Gather` after those of all steps. Records of another backward pass that did
    not need dW, and so did not consume them, are discarded.

    Args:
        layer: a linear layer with W (outputs, inputs) and perhaps b.
    """

    def __init__(self, layer: nn.Linear) -> None:
        self.recorded: defaultdict[int, list[tuple[Tensor, Tensor]]] = defaultdict(list)
        """x[t] (N, inputs) and dy[t] (N, outputs), by backward pass."""
        device = layer.weight.device.type
        low = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else layer.weight.dtype
        # Converted once; autocast would convert at each step.
        self.weight, self.bias = Gather.apply(layer.weight, layer.bias, low, self.recorded)

    def __call__(self, x: Tensor) -> Tensor:
        """x[t] (..., inputs) -> y[t] (..., outputs)."""
        return Step.apply(x.to(self.weight.dtype), self.weight, self.bias, self.recorded)


class Gather(torch.autograd.Function):
    """See `DeferredLinear`."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, bias: Tensor | None, dtype: torch.dtype, recorded: Any
    ) -> tuple[Tensor, Tensor | None]:
        ctx.set_materialize_grads(False)
        ctx.recorded, ctx.dtypes = recorded, (weight.dtype, None if bias is None else bias.dtype)
        low = weight.to(dtype)
        return (
            low.view_as(low) if low is weight else low,
            None if bias is None else bias.to(dtype).view_as(bias),
        )

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        require_first_order("an unroll")
        steps = ctx.recorded.pop(current_pass(), [])
        ctx.recorded.clear()
        if not steps:
            return None, None, None, None
        inputs, errors = (torch.cat(tensors) for tensors in zip(*steps, strict=True))
        weight_dtype, bias_dtype = ctx.dtypes
        with torch.autocast(errors.device.type, enabled=False):
            grad_weight = linear(errors.t(), inputs.t()).to(weight_dtype)
        return grad_weight, errors.sum(0).to(bias_dtype) if ctx.needs_input_grad[1] else None, None, None


class Step(torch.autograd.Function):
    """See `DeferredLinear`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, recorded: Any) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.recorded = recorded
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        require_first_order("an unroll")
        x, weight = ctx.saved_tensors
        ctx.recorded[current_pass()].append((x.flatten(0, -2), grad.flatten(0, -2)))
        with torch.autocast(grad.device.type, enabled=False):
            return linear(grad, weight.t()) if ctx.needs_input_grad[0] else None, None, None, None


def current_pass() -> int:
    """The number of the running backward pass."""
    return torch._C._current_graph_task_id()
