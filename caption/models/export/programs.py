"""A captioner as two `torch.export` programs: the encoder with the decoder's start, and one step of the decoder.

The tensors of the decoder's state (`core.tensor_tree.State`) travel between the two as a flat list. The code that runs
the programs repeats and reorders the carried tensors like `core.tensor_tree.select_hypotheses`, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from caption.attention.stochastic import stochastic_parts
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.tensor_tree import State, TensorTree, leaves, select_hypotheses, with_leaves
from caption.decoders.base import Decoder, Trace
from caption.kernels import plain
from caption.text.vocabulary import START

IMAGES, HYPOTHESES = 2, 3
"""Sizes of the traced example; above 1, because torch.export treats a size of 1 as a constant."""


class Programs(NamedTuple):
    """The two programs, in evaluation mode, for any number of images and hypotheses, and the names of their tensors."""

    encoder: ExportedProgram
    """images (B, 3, H, W) uint8 -> shared tensors (B, ...), then carried tensors (B, 1, ...)."""
    step: ExportedProgram
    """words (B, K) int64, shared and carried tensors -> log-probabilities (B, K, V), weights (B, K, L), the gate (B, K)
    if there is one, and carried tensors (B, K, ...)."""
    shared: list[str]
    carried: list[str]
    outputs: list[str]
    """Names of the step's first outputs: log_probs, weights, and perhaps gate."""
    grid: tuple[int, int]
    """(rows, cols) of the weights."""


class Encoding(nn.Module):
    """The state before the first word, as a flat tuple of tensors; for `places` see `_places`."""

    def __init__(self, captioner: Captioner, places: list[int]) -> None:
        super().__init__()
        self.captioner = captioner
        self.places = places

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        state = _start(self.captioner, images)
        return (*_distinct(state.shared, self.places), *leaves(state.carried))


class Step(nn.Module):
    """One step of the decoder, with its state as a flat list of tensors in the structure of `state`."""

    def __init__(self, decoder: Decoder, state: State, places: list[int]) -> None:
        super().__init__()
        self.decoder = decoder
        self.state = state
        self.places = places

    def forward(self, words: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        shared = with_leaves(self.state.shared, [tensors[place] for place in self.places])
        carried = with_leaves(self.state.carried, tensors[1 + max(self.places) :])
        log_probs, after = self.decoder.step(State(shared, carried, trace=None), words)
        trace: Trace = after.trace
        gate = () if trace.gate is None else (trace.gate,)
        return (log_probs, trace.weights, *gate, *leaves(after.carried))


@torch.no_grad()
def programs(captioner: Captioner) -> Programs:
    """Trace a captioner, which is in evaluation mode afterwards.

    Raises:
        UserError: a part of it cannot be traced; the message names the reason.
    """
    captioner.eval()
    captioner.description()  # raises a UserError for models of other people's code
    if any(part.at_test == "sample" for part in stochastic_parts(captioner)):
        raise UserError(
            "the attention samples at test time, which a graph cannot do: set at_test to expectation or argmax"
        )
    transform = captioner.transform
    images = torch.zeros(IMAGES, 3, transform.height, transform.width, dtype=torch.uint8)
    images = images.to(captioner.device)
    words = torch.full((IMAGES, HYPOTHESES), START, device=captioner.device)
    with plain(captioner):
        return _programs(captioner, images, words)


def _programs(captioner: Captioner, images: Tensor, words: Tensor) -> Programs:
    """See `programs`; for examples (B, 3, H, W) and (B, K) of the inputs."""
    decoder = captioner.decoder
    start = _start(captioner, images)
    places = _places(start.shared)
    shared = _distinct(start.shared, places)
    states = [start._replace(carried=select_hypotheses(start.carried, torch.zeros_like(words)))]
    for _ in range(3):
        states.append(decoder.step(states[-1], words)[1])
    carried, any_images = leaves(states[-1].carried), Dim("images", min=1)
    free = {0: any_images, 1: Dim("hypotheses", min=1)}
    encoder = _trace(Encoding(captioner, places), (images,), ({0: any_images},))
    step = _trace(
        Step(decoder, states[-1], places),
        (words, [*shared, *carried]),
        (
            free,
            [*({0: any_images} for _ in shared), *({**free, **sizes} for sizes in _growing(decoder, states))],
        ),
    )
    return Programs(
        encoder,
        step,
        [f"shared_{number}" for number in range(len(shared))],
        [f"carried_{number}" for number in range(len(carried))],
        ["log_probs", "weights", *([] if states[-1].trace.gate is None else ["gate"])],
        captioner.grids(captioner.encoder(images))[0],
    )


def _start(captioner: Captioner, images: Tensor) -> State:
    return captioner.decoder.start(captioner.project(captioner.encoder(images)))


def _growing(decoder: Decoder, states: Sequence[State]) -> list[dict[int, Any]]:
    """For each carried tensor, its sizes that grow with every word, such as the length of a cache."""
    before, after = (leaves(state.carried) for state in states[-2:])
    if len(before) != len(after):
        raise UserError(
            f"the state of {type(decoder).__name__} gets another tensor with every word, and the inputs of an exported "
            "graph are fixed: keep one tensor that grows"
        )
    return [
        {place: Dim.DYNAMIC for place in range(old.dim()) if old.shape[place] != new.shape[place]}
        for old, new in zip(before, after, strict=True)
    ]


def _trace(module: nn.Module, example: tuple[Any, ...], sizes: tuple[Any, ...]) -> ExportedProgram:
    try:
        return torch.export.export(module, example, dynamic_shapes=sizes, strict=False)
    except Exception as error:  # torch raises many exception types for what it cannot trace
        reason = str(error).strip().partition("\n")[0]
        raise UserError(f"torch.export cannot trace this model: {reason}") from error


def _places(tree: TensorTree) -> list[int]:
    """For each leaf, its place among the distinct tensors of the tree. Regions often occur as both views and values."""
    order: dict[int, int] = {}
    return [order.setdefault(id(tensor), len(order)) for tensor in leaves(tree)]


def _distinct(tree: TensorTree, places: list[int]) -> list[Tensor]:
    """The tensors of a tree, each once."""
    tensors = leaves(tree)
    return [tensors[places.index(place)] for place in range(1 + max(places))]
