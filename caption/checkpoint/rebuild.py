"""From a checkpoint to the captioner that it describes, or to the specs of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from caption.captioner import Captioner
from caption.checkpoint.files import PREFIX, read
from caption.checkpoint.plain import LARGEST_ARGUMENT, check_plain
from caption.data.resize import ImageTransform
from caption.decoders.base import Decoder
from caption.encoders.base import Encoder
from caption.encoders.refiners import Refiner
from caption.errors import CheckpointError
from caption.objectives import Objective
from caption.parts import check_texts, make
from caption.runtime.trust import class_paths
from caption.search import Search
from caption.text.vocabulary import Vocabulary

Made = TypeVar("Made")
PARTS: dict[str, type] = {
    "encoder": Encoder,
    "refiner": Refiner,
    "decoder": Decoder,
    "objective": Objective,
}


def load(path: str | Path, device: str | torch.device = "cpu", trust: Iterable[str] = ()) -> Captioner:
    """Load a captioner from a checkpoint, in evaluation mode.

    Args:
        path: a file written by training or by `save`.
        device: where to put the captioner.
        trust: packages whose classes the checkpoint may name, although their modules are not imported yet.

    Raises:
        CheckpointError: the file is missing, damaged, a pickle, of a newer format, names a class of a package that is
            not trusted, its parts cannot be constructed, or its weights are not theirs.
    """
    contents = read(path)
    trust = [trust] if isinstance(trust, str) else [*trust]
    weights = {
        name.removeprefix(PREFIX): tensor
        for name, tensor in contents["state_dict"].items()
        if name.startswith(PREFIX)
    }
    try:
        _check_weights(contents["captioner"], weights, trust)
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
    wanted = _without_memory(lambda: rebuild(description, trust).state_dict(), description, weights)
    if wanted.keys() != weights.keys():
        lacking, surplus = [*wanted.keys() - weights.keys()], [*weights.keys() - wanted.keys()]
        raise CheckpointError(f"weights are missing: {lacking[:3]}, or are not its own: {surplus[:3]}"[:500])
    for name, tensor in weights.items():
        if tensor.shape != wanted[name].shape or _kind(tensor) != _kind(wanted[name]):
            found = f"{_kind(tensor)} {tuple(tensor.shape)}"
            raise CheckpointError(
                f"{name} is {found}, and the model has {_kind(wanted[name])} {tuple(wanted[name].shape)} there"
            )
        if tensor.is_floating_point() and tensor.isnan().any():
            raise CheckpointError(
                f"{name} holds NaN: the training that wrote it had diverged, take an earlier checkpoint"
            )


def _without_memory(construct: Callable[[], Made], specs: dict[str, Any], weights: dict[str, Any]) -> Made:
    """Construct parts on the meta device. Parts of trusted packages that need numbers to construct get memory."""
    check_plain([specs.get(name) for name in PARTS], LARGEST_ARGUMENT)
    try:
        with torch.device("meta"), Budget(weights):
            return construct()
    except RuntimeError:  # NotImplementedError, too
        if all(path.startswith("caption.") for path in class_paths(specs)):
            raise
        return construct()


def _kind(tensor: Tensor) -> str:
    if tensor.dtype == torch.bool or tensor.is_complex():
        return str(tensor.dtype)
    return "floating" if tensor.is_floating_point() else "integer"


IN_PLACE = {f"aten::{name}_" for name in ("normal", "uniform", "fill", "zero", "relu", "hardtanh")}


class Budget(TorchDispatchMode):
    """Refuses the construction of a model that is much larger than its weights.

    Args:
        weights: those in the file.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True imports torch's compiler, which takes longer than torch

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        # Initialisation takes up to ten operations and copies of each weight; what is not stored is small.
        self.operations = 10_000 + 100 * len(weights)
        self.elements = 50_000_000 + 20 * sum(tensor.numel() for tensor in weights.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations -= 1
        # Without memory there are no values to change, and the operation would only take time.
        result = args[0] if func._schema.name in IN_PLACE else func(*args, **(kwargs or {}))
        self.elements -= sum(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, Tensor))
        if self.operations < 0 or self.elements < 0:
            raise CheckpointError("it describes a model that is larger than its weights")
        return result


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
    described = contents["captioner"]
    hyper_parameters = contents.get("hyper_parameters")
    objective = hyper_parameters.get("objective") if isinstance(hyper_parameters, dict) else None
    specs = {name: described.get(name) for name in PARTS} | {"objective": objective}
    for name in ("encoder", "decoder"):
        if specs[name] is None:
            raise CheckpointError(f"the checkpoint does not say which {name} it has")

    def make_all() -> dict[str, Any]:
        return {n: spec if spec is None else make(spec, PARTS[n], trust).spec for n, spec in specs.items()}

    try:
        found = _without_memory(make_all, specs, contents["state_dict"])
        if objective is None:  # the configuration's
            del found["objective"]
        check_texts(found, trust)
    except CheckpointError:
        raise
    except Exception as error:  # a part that is given impossible arguments raises anything
        raise CheckpointError(f"the parts in the checkpoint cannot be made: {error}") from error
    return found
