"""Records which operators run, for tests that some work is not done."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Dispatched(TorchDispatchMode):
    """Context in which `calls` collects each operator's name and the shapes of its tensor arguments and of its
    result."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, list[tuple[int, ...]], tuple[int, ...] | None]] = []

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        result = function(*arguments, **(named or {}))
        name = function.overloadpacket._qualified_op_name.removeprefix("aten::")
        given = [tuple(argument.shape) for argument in arguments if isinstance(argument, Tensor)]
        self.calls.append((name, given, tuple(result.shape) if isinstance(result, Tensor) else None))
        return result
