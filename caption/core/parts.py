"""Parts, the replaceable modules of a captioner, which record their constructor arguments.

Every encoder, attention, decoder and objective is a part, which records its class path and constructor arguments. A
checkpoint stores them as plain strings and numbers; a YAML file has the same form. `caption.core.runtime.trust.make`
makes parts from them.

Sizes that depend on other parts (the length of a region vector, the number of words) are not arguments. A part that
needs them creates its weights in `build`, which the parent part calls once. A YAML file therefore contains each size
once, and sizes cannot disagree.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, get_args, get_origin, get_type_hints

from caption.core.errors import UserError

Spec = dict[str, Any]
"""`{"class_path": "caption.attention.Softmax", "init_args": {...}}`, nested; plain types only."""


class Part:
    """Mixin that records the constructor arguments: `trust.make(part.spec, Part)` makes an equal object."""

    _arguments: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" in cls.__dict__:
            cls.__init__ = _record_arguments(cls.__init__)  # type: ignore[method-assign]

    def revise(self, **arguments: Any) -> None:
        """Update the recorded constructor arguments after a change in place, so that `spec` describes the changed
        part."""
        self._arguments.update(arguments)

    @property
    def spec(self) -> Spec:
        """Class path and arguments as plain types."""
        arguments = getattr(self, "_arguments", {})
        return {
            "class_path": public_path(type(self)),
            "init_args": {name: _plain(value) for name, value in arguments.items()},
        }


def public_path(cls: type) -> str:
    """The shortest import path of a class: through the outermost package that re-exports it."""
    packages = accumulate(cls.__module__.split("."), "{}.{}".format)
    home = next(
        (name for name in packages if getattr(sys.modules.get(name), cls.__name__, None) is cls), None
    )
    return f"{home}.{cls.__name__}" if home else f"{cls.__module__}.{cls.__qualname__}"


def _record_arguments(initialise: Any) -> Any:
    @functools.wraps(initialise)
    def record_and_initialise(self: Any, *args: Any, **kwargs: Any) -> None:
        if not hasattr(self, "_arguments"):  # the outermost __init__ runs first
            bound = inspect.signature(initialise).bind(self, *args, **kwargs)
            bound.apply_defaults()
            for name, choices in _choices(initialise).items():
                check_choice(name, bound.arguments[name], choices)
            _check_sizes(self, bound.arguments)
            arguments = dict(list(bound.arguments.items())[1:])
            for parameter in inspect.signature(initialise).parameters.values():
                if parameter.kind is parameter.VAR_KEYWORD:  # **kwargs for the base class
                    arguments |= arguments.pop(parameter.name)
            # object.__setattr__: nn.Module refuses attributes before its own __init__ has run.
            object.__setattr__(self, "_arguments", arguments)
        initialise(self, *args, **kwargs)

    return record_and_initialise


@functools.cache
def _choices(initialise: Any) -> dict[str, tuple[str, ...]]:
    """The allowed values of the arguments that are annotated as a `Literal`, to check calls from Python. YAML is
    checked when it is parsed."""
    try:
        hints = get_type_hints(initialise)
    except NameError:  # a custom class that imports names only for type checking
        return {}
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def _plain(value: Any) -> Any:
    if isinstance(value, Part):
        return value.spec
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if getattr(value, "ndim", None) == 0:  # a NumPy scalar; tested without importing NumPy
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)  # paths


def _check_sizes(part: Part, arguments: Mapping[str, Any]) -> None:
    """Raise UserError if a whole number named `size`, or `..._size`, is below 1: torch makes tensors of size 0."""
    for name, value in arguments.items():
        if name.split("_")[-1] == "size" and isinstance(value, int) and value < 1:
            raise UserError(f"{name} {value} of {type(part).__name__} must be at least 1")


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise UserError unless `value` is one of `choices`."""
    if value not in choices:
        raise UserError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r}")
