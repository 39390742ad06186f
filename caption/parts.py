"""Parts: the replaceable modules a captioner is made of, and how a checkpoint makes them again.

Every encoder, attention, decoder and objective is a part: it remembers its class path and the arguments
it was made with. That record, plain strings and numbers, is what a checkpoint stores and what a YAML file says.

Sizes that follow from other parts (how long a region vector is, how many words there are) are no arguments.
A part that needs them creates its weights in `build`, which its owner calls once, so that a YAML file names a
choice once and two sizes cannot disagree.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from caption.errors import CheckpointError

Spec = dict[str, Any]
"""`{"class_path": "caption.attention.Softmax", "init_args": {...}}`, nested; plain types only."""


class Part:
    """Mixin: remembers how the object was made. `part.spec` makes an equal one through `make`."""

    _arguments: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _recording(cls.__init__)  # type: ignore[method-assign]

    @property
    def spec(self) -> Spec:
        """Class path and arguments as plain types."""
        arguments = getattr(self, "_arguments", {})
        return {
            "class_path": public_path(type(self)),
            "init_args": {name: _plain(value) for name, value in arguments.items()},
        }


def public_path(cls: type) -> str:
    """Where users import a class from: the package that re-exports it, so that files can be split and merged."""
    package = cls.__module__.rpartition(".")[0]
    if package and getattr(sys.modules.get(package), cls.__name__, None) is cls:
        return f"{package}.{cls.__name__}"
    return f"{cls.__module__}.{cls.__qualname__}"


def _recording(initialise: Any) -> Any:
    @functools.wraps(initialise)
    def record_and_initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        if not hasattr(self, "_arguments"):  # the outermost __init__ is the one that was called
            bound = inspect.signature(initialise).bind(self, *args, **kwargs)
            bound.apply_defaults()
            arguments = dict(list(bound.arguments.items())[1:])
            for parameter in inspect.signature(initialise).parameters.values():
                if parameter.kind is parameter.VAR_KEYWORD:  # a subclass that passes on what it does not know
                    arguments |= arguments.pop(parameter.name)
            # object.__setattr__: nn.Module refuses attributes before its own __init__ has run.
            object.__setattr__(self, "_arguments", arguments)
        initialise(self, *args, **kwargs)

    return record_and_initialise


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return value.spec
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)  # paths


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise ValueError unless `value` is one of `choices`. YAML is checked when it is read, Python is not."""
    if value not in choices:
        raise ValueError(f"{name} is one of {', '.join(map(repr, choices))}, not {value!r}")


Kind = TypeVar("Kind")


def make(spec: Mapping[str, Any], kind: type[Kind]) -> Kind:
    """The object of class `kind` that a spec describes; the parts in its arguments are made first.

    Raises:
        CheckpointError: the class does not exist, is not a `kind`, or does not take the arguments.
    """
    path = spec.get("class_path") if isinstance(spec, Mapping) else spec
    given = spec.get("init_args", {}) if isinstance(spec, Mapping) else None
    if not isinstance(path, str) or "." not in path or not all(map(str.isidentifier, path.split("."))):
        raise CheckpointError(f"a part is described by a class path, not by {path!r}")
    if not isinstance(given, Mapping):
        raise CheckpointError(f"{path} is described by its arguments, not by {given!r}")
    module, _, name = path.rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise CheckpointError(f"there is no class {path}: install the package that defines it") from error
    # A checkpoint may come from anybody: it must not be able to call whatever it likes.
    if not (isinstance(cls, type) and issubclass(cls, kind)):
        raise CheckpointError(f"{path} is no {kind.__name__}")
    arguments = {key: _made(value) for key, value in given.items()}
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{path} does not take these arguments: {error}") from error


def _made(value: Any) -> Any:
    if isinstance(value, Mapping):
        return (
            make(value, Part)
            if "class_path" in value
            else {key: _made(entry) for key, entry in value.items()}
        )
    if isinstance(value, list):
        return [_made(entry) for entry in value]
    return value
