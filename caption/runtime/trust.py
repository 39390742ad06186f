"""Class paths in files from strangers: which modules may be imported for them.

Importing a module runs its code. A class path in a checkpoint is therefore imported only if its module belongs to this
package or to a package that the user trusts. A module that is already imported may be named, too: nothing runs.
A configuration is the user's own, and all its class paths are imported.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any, Literal, get_args, get_origin, get_type_hints

from caption.errors import CheckpointError

OWN = __name__.partition(".")[0]


def class_paths(spec: Any) -> Iterator[str]:
    """All class paths in a spec or configuration, nested ones too."""
    if isinstance(spec, Mapping):
        if isinstance(spec.get("class_path"), str):
            yield spec["class_path"]
        for value in spec.values():
            yield from class_paths(value)
    elif isinstance(spec, (list, tuple)):
        for value in spec:
            yield from class_paths(value)


def packages(trust: Iterable[str]) -> tuple[str, ...]:
    """Trusted packages, also if they are given as a single name."""
    return (trust,) if isinstance(trust, str) else tuple(trust)


def find_object(path: Any, trust: Iterable[str] = ()) -> Any:
    """What a class path names. It need not be a class: check that.

    Args:
        path: module and name.
        trust: packages, modules or class paths, beside this package, whose modules may be imported.

    Raises:
        CheckpointError: it does not exist, or its module is not imported and not trusted.
    """
    if not isinstance(path, str) or "." not in path or not all(map(str.isidentifier, path.split("."))):
        raise CheckpointError(f"a class path such as caption.attention.Softmax is expected, not {path!r}")
    module, _, name = path.rpartition(".")
    trusted = (OWN, *packages(trust))
    if any(module == known or path == known or module.startswith(f"{known}.") for known in trusted):
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise CheckpointError(f"there is no class {path}: install the package that defines it") from error
    if module not in sys.modules:
        package = path.partition(".")[0]
        raise CheckpointError(
            f"{path} is not of this package, and importing it would run the code of {package}. If you trust that code "
            f"and the file, name the package: --trust {package}, or trust={package!r} in Python"
        )
    # Not getattr: the __getattr__ of a module may import others.
    if name not in vars(sys.modules[module]):
        raise CheckpointError(f"there is no class {path}: install the package that defines it")
    return vars(sys.modules[module])[name]


def check_texts(value: Any, trust: Iterable[str] = ()) -> None:
    """Refuse a spec, or specs in dicts and lists, with text in the place of a part.

    `make` passes such text on to the constructor. A parser of configurations imports what it names.

    Raises:
        CheckpointError: an argument is text, and its annotation does not say that it may be.
    """
    if isinstance(value, Mapping) and "class_path" in value:
        path, arguments = value["class_path"], value.get("init_args", {})
        cls = find_object(path, trust)
        for name, argument in arguments.items():
            if (text := next(_texts(argument), None)) is not None and not _is_plain(_hint(cls, name)):
                raise CheckpointError(
                    f"the argument {name} of {path} is text, {text!r}, and its annotation does not say str"
                )
        check_texts(arguments, trust)
    elif isinstance(value, (Mapping, list, tuple)):
        for entry in value.values() if isinstance(value, Mapping) else value:
            check_texts(entry, trust)


def _hint(cls: type, name: str) -> Any:
    """The annotation of a constructor's argument, which may be passed on to a base class; None if there is none."""
    for base in cls.__mro__:
        if (initialise := vars(base).get("__init__")) is not None:
            parameters = inspect.signature(initialise).parameters
            if name in parameters:
                with suppress(NameError):  # a name that is imported for types only
                    return get_type_hints(initialise).get(name)
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
                break
    return None


def _is_plain(hint: Any) -> bool:
    """Whether an annotation admits plain values only, and no parts."""
    if hint is None:
        return False
    if get_origin(hint) is Literal:
        return True
    inner = [kind for kind in get_args(hint) if kind is not ...]
    return all(map(_is_plain, inner)) if inner else hint in (str, int, float, bool, type(None))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and "class_path" not in value:
        for entry in value.values():
            yield from _texts(entry)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _texts(entry)
