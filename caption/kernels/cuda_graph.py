"""The operations of torch.cuda that record a function as a graph and replay it; a test has its own in their place."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import torch
from torch import Tensor


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
