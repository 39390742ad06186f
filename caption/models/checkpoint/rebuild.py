"""Rebuilds the captioner that a checkpoint describes, or the specs of its parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from caption.captioner import Captioner
from caption.core.errors import CheckpointError, reported_as
from caption.core.runtime.safe_loading import check_plain
from caption.core.runtime.trust import check_texts, class_paths, make, packages
from caption.data.photos import ImageTransform
from caption.decoders.base import Decoder
from caption.encoders import Refiner
from caption.encoders.base import Encoder
from caption.models.checkpoint.format import PREFIX, read
from caption.objectives import Objective
from caption.search import Search
from caption.text.vocabulary import Vocabulary

Built = TypeVar("Built")
CLASSES: dict[str, type] = {
    "encoder": Encoder,
    "refiner": Refiner,
    "decoder": Decoder,
    "objective": Objective,
}
"""Base classes of the parts that a training checkpoint describes."""
LARGEST_ARGUMENT = 20_000
"""Limit of the numbers in a part's arguments: far above any size, and low enough for a list of that many layers."""
DRAWING = (Tensor.normal_, Tensor.uniform_)
"""Methods that draw initial weights; the functions of `torch.nn.init` are recognised by their module."""
MOST_COMPUTED = 50_000_000
"""Limit of the elements that are computed in a model's construction and are not in its file."""


def load(path: str | Path, device: str | torch.device = "cpu", trust: Iterable[str] = ()) -> Captioner:
    """Load a captioner from a checkpoint, in evaluation mode.

    Args:
        path: a file written by training or by `save`.
        device: where to put the captioner.
        trust: packages whose classes the checkpoint may name, although their modules are not imported yet.

    Raises:
        CheckpointError: the file is missing, damaged, a pickle, of another format, names a class of a package that is
            not trusted, its parts cannot be constructed, or its weights do not fit them.
    """
    contents = read(path)
    trust = packages(trust)
    weights = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in contents["state_dict"].items()
        if name.startswith(PREFIX)
    }
    # Parts with impossible arguments raise errors of any type.
    with reported_as(CheckpointError, f"the captioner in {path} cannot be rebuilt", Exception):
        captioner = _with_weights(contents["captioner"], weights, trust)
    return captioner.to(device).eval()


def rebuild(description: dict[str, Any], trust: Iterable[str] = ()) -> Captioner:
    """Build a captioner from `Captioner.description()`, with random weights."""
    refiner = description["refiner"]
    encoder = make(description["encoder"], Encoder, trust)
    for part in encoder.modules():  # an encoder may hold others
        if isinstance(part, Encoder):
            part.trust = packages(trust)
    return Captioner(
        encoder=encoder,
        decoder=make(description["decoder"], Decoder, trust),
        vocabulary=Vocabulary.from_dict(description["vocabulary"]),
        transform=ImageTransform.from_dict(description["transform"]),
        search=make(description["search"], Search, trust),  # type: ignore[type-abstract]
        refiner=None if refiner is None else make(refiner, Refiner, trust),
    )


def _with_weights(description: dict[str, Any], weights: dict[str, Tensor], trust: Iterable[str]) -> Captioner:
    """The captioner that a checkpoint describes. Its memory is allocated after the weights have been compared.

    A captioner constructed without memory takes copies of the weights, if these are all of its tensors. It is
    constructed again, with memory, if modules share weights, or if the construction computes values that are not among
    the weights, such as the tables of other packages' encoders.
    """
    captioner = without_memory(lambda: rebuild(description, trust), description, weights)
    state = captioner.state_dict(keep_vars=True)
    _check_weights(weights, state)
    stored = set(map(id, state.values()))
    computed = [tensor for tensor in _tensors(captioner) if tensor.is_meta and id(tensor) not in stored]
    if sum(tensor.numel() for tensor in computed) > MOST_COMPUTED:
        raise CheckpointError("it describes a model that is larger than its weights")
    if computed or len(stored) < len(state):
        with torch.random.fork_rng(devices=[]):  # loading draws no random numbers
            captioner = rebuild(description, trust)
        captioner.load_state_dict(weights)
    else:
        # Copies, with the type and memory layout of a newly constructed model.
        copies = {
            name: torch.empty_strided(weight.shape, weight.stride(), dtype=weight.dtype).copy_(weights[name])
            for name, weight in state.items()
        }
        captioner.load_state_dict(copies, assign=True)
    return captioner


def _check_weights(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    if expected.keys() != weights.keys():
        missing, surplus = [*expected.keys() - weights.keys()], [*weights.keys() - expected.keys()]
        raise CheckpointError(
            f"weights are missing: {missing[:3]}, or do not belong to it: {surplus[:3]}"[:500]
        )
    for name, tensor in weights.items():
        stored, needed = ((_kind(weight), tuple(weight.shape)) for weight in (tensor, expected[name]))
        if stored != needed:
            raise CheckpointError(
                f"{name} is {stored[0]} {stored[1]}, but the model needs {needed[0]} {needed[1]}"
            )


def without_memory(
    build: Callable[[], Built], specs: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> Built:
    """Construct parts on the meta device. Parts of trusted packages that cannot be constructed there get memory.

    Args:
        build: constructs them.
        specs: of the parts, by the names in `CLASSES`.
        weights: in the file; construction makes about ten calls of torch for each of them.

    Raises:
        CheckpointError: an argument is too large, or the parts have many times more weights than the file.
    """
    check_plain([specs.get(name) for name in CLASSES], LARGEST_ARGUMENT)
    try:
        with torch.device("meta"), without_drawing(30_000 + 30 * len(weights)):
            return build()
    except RuntimeError:  # NotImplementedError, too
        if all(path.startswith("caption.") for path in class_paths(specs)):
            raise
        return build()


def without_drawing(most: float = math.inf) -> TorchFunctionMode:
    """Context in which modules are constructed without initial weights, with at most this number of calls of torch."""
    return _Construction(most)


class _Construction(TorchFunctionMode):
    """Skips drawing initial weights, for which the meta device would import torch's compiler, which takes seconds.

    Refuses to construct many more parts than the file has weights, since a number in the file may ask for any number.
    """

    def __init__(self, most: float) -> None:
        super().__init__()
        self.left = most

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        self.left -= 1
        if self.left < 0:
            raise CheckpointError("it describes a model that is larger than its weights")
        if function in DRAWING or getattr(function, "__module__", "") == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    """All tensors of a module and its children: weights, and those in other attributes."""
    stack: list[Any] = [vars(inner) for inner in module.modules()]
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (dict, list, tuple)):
            stack += value.values() if isinstance(value, dict) else value


def _kind(tensor: Tensor) -> str:
    if tensor.dtype == torch.bool or tensor.is_complex():
        return str(tensor.dtype)
    return "floating" if tensor.is_floating_point() else "integer"


def architecture(contents: dict[str, Any], trust: Iterable[str] = ()) -> dict[str, Any]:
    """The specs for further training or evaluation: `encoder`, `refiner`, `decoder`, and `objective` if there is one.
    Other hyper-parameters of a training checkpoint are left out.

    The parts are constructed once, without memory for their weights, and the specs are read from them. So a parser of
    configurations, which imports whatever a value names, finds only values that have been checked.

    Args:
        contents: from `read`.
        trust: see `load`.

    Raises:
        CheckpointError: a part is missing, names a class of a package that is not trusted, or cannot be constructed.
    """
    trust = packages(trust)
    hyper_parameters = contents.get("hyper_parameters")
    objective = hyper_parameters.get("objective") if isinstance(hyper_parameters, dict) else None
    specs = {name: contents["captioner"].get(name) for name in CLASSES} | {"objective": objective}
    for name in ("encoder", "decoder"):
        if specs[name] is None:
            raise CheckpointError(f"the checkpoint does not describe its {name}")
    if objective is None:
        del specs["objective"]

    def own_specs() -> dict[str, Any]:
        return {n: spec if spec is None else make(spec, CLASSES[n], trust).spec for n, spec in specs.items()}

    try:
        model: dict[str, Any] = without_memory(own_specs, specs, contents["state_dict"])
        check_texts(model, trust)
    except CheckpointError:
        raise
    except Exception as error:  # parts with impossible arguments raise errors of any type
        raise CheckpointError(f"the parts in the checkpoint cannot be built: {error}") from error
    return model
