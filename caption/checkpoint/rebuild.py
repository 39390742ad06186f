"""From a checkpoint to the captioner that it describes, or to the specs of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from caption.captioner import Captioner
from caption.checkpoint.bounds import LARGEST_ARGUMENT, Budget, Uninitialised, check_plain
from caption.checkpoint.files import PREFIX, read
from caption.data.resize import ImageTransform
from caption.decoders.base import Decoder
from caption.encoders import Refiner
from caption.encoders.base import Encoder
from caption.errors import CheckpointError
from caption.objectives import Objective
from caption.parts import make
from caption.runtime.trust import check_texts, class_paths, packages
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


def load(path: str | Path, device: str | torch.device = "cpu", trust: Iterable[str] = ()) -> Captioner:
    """Load a captioner from a checkpoint, in evaluation mode.

    Args:
        path: a file written by training or by `save`.
        device: where to put the captioner.
        trust: packages whose classes the checkpoint may name, although their modules are not imported yet.

    Raises:
        CheckpointError: the file is missing, damaged, a pickle, of another format, names a class of a package that is
            not trusted, its parts cannot be constructed, or its weights are not theirs.
    """
    contents = read(path)
    trust = packages(trust)
    weights = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in contents["state_dict"].items()
        if name.startswith(PREFIX)
    }
    try:
        _check_weights(contents["captioner"], weights, trust)
        with Uninitialised():
            captioner = rebuild(contents["captioner"], trust)
        captioner.load_state_dict(weights)
    except Exception as error:  # a part that is given impossible arguments raises anything
        raise CheckpointError(f"the captioner in {path} cannot be rebuilt: {error}") from error
    return captioner.to(device).eval()


def rebuild(description: dict[str, Any], trust: Iterable[str] = ()) -> Captioner:
    """Make a captioner from `Captioner.description()`, with random weights."""
    refiner = description["refiner"]
    return Captioner(
        encoder=make(description["encoder"], Encoder, trust),
        decoder=make(description["decoder"], Decoder, trust),
        vocabulary=Vocabulary.from_dict(description["vocabulary"]),
        transform=ImageTransform.from_dict(description["transform"]),
        search=make(description["search"], Search, trust),  # type: ignore[type-abstract]
        refiner=None if refiner is None else make(refiner, Refiner, trust),
    )


def _check_weights(description: dict[str, Any], weights: dict[str, Tensor], trust: Iterable[str]) -> None:
    """Check that weights are those of the captioner described, before memory is taken for it."""
    expected = _without_memory(lambda: rebuild(description, trust).state_dict(), description, weights)
    if expected.keys() != weights.keys():
        missing, surplus = [*expected.keys() - weights.keys()], [*weights.keys() - expected.keys()]
        raise CheckpointError(f"weights are missing: {missing[:3]}, or are not its own: {surplus[:3]}"[:500])
    for name, tensor in weights.items():
        stored, own = ((_kind(weight), tuple(weight.shape)) for weight in (tensor, expected[name]))
        if stored != own:
            raise CheckpointError(
                f"{name} is {stored[0]} {stored[1]}, and the model has {own[0]} {own[1]} there"
            )
        if tensor.is_floating_point() and tensor.isnan().any():
            raise CheckpointError(
                f"{name} holds NaN: the training that wrote it had diverged, take an earlier checkpoint"
            )


def _without_memory(build: Callable[[], Built], specs: dict[str, Any], weights: dict[str, Any]) -> Built:
    """Construct parts on the meta device. Parts of trusted packages that need numbers to construct get memory."""
    check_plain([specs.get(name) for name in CLASSES], LARGEST_ARGUMENT)
    try:
        with torch.device("meta"), Budget(weights):
            return build()
    except RuntimeError:  # NotImplementedError, too
        if all(path.startswith("caption.") for path in class_paths(specs)):
            raise
        return build()


def _kind(tensor: Tensor) -> str:
    if tensor.dtype == torch.bool or tensor.is_complex():
        return str(tensor.dtype)
    return "floating" if tensor.is_floating_point() else "integer"


def architecture(contents: dict[str, Any], trust: Iterable[str] = ()) -> dict[str, Any]:
    """The specs with which training or evaluation goes on: `encoder`, `refiner`, `decoder`, and `objective` if there is
    one. All else that the hyper-parameters of a training checkpoint may hold is left out.

    The parts are made once, without memory for their weights, and give their own classes and arguments. So a parser of
    configurations, which imports whatever a value names, finds nothing in them that has not been checked.

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
            raise CheckpointError(f"the checkpoint does not say which {name} it has")
    if objective is None:
        del specs["objective"]

    def own_specs() -> dict[str, Any]:
        return {n: spec if spec is None else make(spec, CLASSES[n], trust).spec for n, spec in specs.items()}

    try:
        model: dict[str, Any] = _without_memory(own_specs, specs, contents["state_dict"])
        check_texts(model, trust)
    except CheckpointError:
        raise
    except Exception as error:  # a part that is given impossible arguments raises anything
        raise CheckpointError(f"the parts in the checkpoint cannot be made: {error}") from error
    return model
