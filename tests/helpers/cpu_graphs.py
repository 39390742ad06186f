"""CUDA graphs on a CPU: operations are recorded below autograd, and replayed into the tensors that they had filled.

As on a GPU, Python does not run again: shapes, numbers and branches are those of the recording, an operation reads
memory as it is at the replay, and draws come from the generator as it is then. Graphs that share memory spoil what the
others computed in between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from caption.kernels import additive_energies as energies
from caption.kernels import cuda_graph

WAITING = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.nonzero.default,
    torch.ops.aten.masked_select.default,
    torch.ops.aten.is_nonzero.default,
}


class Pool:
    """Memory that graphs share."""

    def __init__(self) -> None:
        self.recorders: list[Recorder] = []


class Recorder(TorchDispatchMode):
    """Records operations."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, list[Tensor]]] = []
        self.between: list[Tensor] = []
        """The tensors that operations have filled."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in WAITING:
            raise RuntimeError(f"{func} waits for the GPU, which no graph can")
        # Aliases, because the shape of a tensor may change in place.
        given = tree_map(alias, (args, kwargs or {}))
        result = func(*args, **kwargs or {})
        filled = [alias(tensor) for tensor in tree_leaves(result) if isinstance(tensor, Tensor)]
        read = {address(tensor) for tensor in tree_leaves(given) if isinstance(tensor, Tensor)}
        if not func._schema.is_mutable:
            filled = [tensor for tensor in filled if address(tensor) not in read]
            self.between += filled
        if filled or func._schema.is_mutable:  # the others are views
            self.calls.append((func, *given, filled))
        return result

    def replay(self) -> None:
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            for func, args, kwargs, filled in self.calls:
                results = [
                    tensor for tensor in tree_leaves(func(*args, **kwargs)) if isinstance(tensor, Tensor)
                ]
                if not func._schema.is_mutable:
                    for own, tensor in zip(filled, results, strict=True):
                        own.copy_(tensor)


def alias(value: Any) -> Any:
    """A tensor in the same memory; other values as they are."""
    return value.detach() if isinstance(value, Tensor) else value


def address(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


class CPUGraphs:
    """In the place of the operations of torch.cuda in `caption.kernels.cuda_graph`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.replays = 0
        self.recorded = 0
        monkeypatch.setattr(cuda_graph, "new_pool", Pool)
        monkeypatch.setattr(cuda_graph, "on_gpu", lambda tensor: True)
        monkeypatch.setattr(cuda_graph, "device_of", lambda tensor: nullcontext())
        monkeypatch.setattr(cuda_graph, "warm_up", lambda run: run())
        monkeypatch.setattr(cuda_graph, "record", self.record)
        # The energies of a GPU: on a CPU, tiles depend on the numbers.
        monkeypatch.setattr(energies, "prepare_keys", lambda keys, _: energies.AdditiveKeys(keys, False))
        monkeypatch.setattr(energies, "tiled", self.energies)

        monkeypatch.setattr(torch.nn.functional, "one_hot", self.one_hot)  # reads the numbers on a CPU alone

    @staticmethod
    def one_hot(index: Tensor, classes: int) -> Tensor:
        return torch.zeros(*index.shape, classes, dtype=torch.long).scatter(-1, index[..., None], 1)

    @staticmethod
    def energies(query: Tensor, keys: energies.AdditiveKeys, energy: Tensor, activation: Any) -> Tensor:
        precision = energies.at_least_single(keys.tensor)
        found: Tensor = energies.Recomputed.apply(
            query.to(precision), keys.tensor, energy.to(precision), activation
        )
        return found

    def record(self, run: Callable[[], Any], pool: Pool) -> tuple[Callable[[], None], Any]:
        recorder = Recorder()
        with recorder:
            result = run()
        # Weights and arguments are not among them, nor what stays referenced: results.
        kept = {address(tensor) for tensor in tree_leaves(result) if isinstance(tensor, Tensor)}
        own = [tensor for tensor in recorder.between if address(tensor) not in kept]
        recorder.between = [tensor for tensor in own if tensor.is_floating_point()]
        group = pool.recorders
        group.append(recorder)
        self.recorded += 1
        number = len(group) - 1

        def replay() -> None:
            self.replays += 1
            # A backward pass reads what the forward pass recorded just before it has computed.
            for other in group[: max(0, number - 1)] + group[number + 2 :]:
                for tensor in other.between:
                    tensor.fill_(torch.nan)
            recorder.replay()

        return replay, result
