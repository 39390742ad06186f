"""Class paths in files from strangers: which modules may be imported for them, and from where; and the objects that are
made of them.

Importing a module runs its code. A class path in a checkpoint is therefore imported only if its module is one of this
package's that define parts, or belongs to a package that the user trusts. A module that is already imported may be
named, too: nothing runs. A configuration is the user's own, and all its class paths are imported.

The working directory may be a stranger's folder. Of its modules, those that the user names can be imported, and what
these import, and no others.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from caption.core.errors import CheckpointError, UserError, first_few, reported_as
from caption.core.parts import Part
from caption.core.runtime.inputs import CONFIGURATION, read_input

Kind = TypeVar("Kind")
OWN = __name__.partition(".")[0]
PARTS = tuple(f"{OWN}.{room}" for room in ("attention", "decoders", "encoders", "objectives", "search"))
"""Rooms of this package whose classes a checkpoint may name. Importing their modules has no other effect."""


class WorkingDirectory(MetaPathFinder):
    """Finds modules in a folder: those with the names given, and what their files import.

    Python looks into the working directory for every module when it runs a script or a notebook, but not when it runs
    an installed command. This finder is asked last.
    """

    def __init__(self) -> None:
        self.folder = os.curdir
        self.names: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Where a module of the folder is, if it is in `names`; what its files import is found from then on, too."""
        if path is not None or fullname not in self.names:
            return None
        spec = PathFinder.find_spec(fullname, [self.folder])
        if spec is not None:
            folders = spec.submodule_search_locations
            files = (
                [path for folder in folders for path in Path(folder).rglob("*.py")]
                if folders
                else [spec.origin]
            )
            self.names.update(*map(_imported, files))
        return spec


def _imported(file: str | Path | None) -> set[str]:
    """The packages that a file imports."""
    try:
        nodes = [*ast.walk(ast.parse(read_input(file or "", CONFIGURATION)))]
    except (UserError, SyntaxError, ValueError):  # Python will say so
        return set()
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in names}


_finder = WorkingDirectory()


def import_from(folder: str, values: Any) -> None:
    """Let modules of a folder be imported, after those that are installed, that the user's own values name.

    Args:
        folder: the working directory.
        values: what the user wrote, in plain types: class paths, and functions as `module:function`, at any depth.
    """
    _finder.folder = os.path.abspath(folder)
    for text in _texts(values, nested=True):
        if (match := NAMED.fullmatch(text)) and match[1] != OWN and not os.path.exists(text):
            _finder.names.add(match[1])
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)


NAMED = re.compile(r"([^\W\d]\w*)[.:][\w.:]+")


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
        CheckpointError: it does not exist, its module is not imported and not trusted, or exits.
    """
    if not isinstance(path, str) or "." not in path or not all(map(str.isidentifier, path.split("."))):
        raise CheckpointError(f"a class path such as caption.attention.Softmax is expected, not {path!r}")
    module, _, name = path.rpartition(".")
    trusted = [known for known in packages(trust) if f"{path}.".startswith(f"{known}.")]
    if trusted or any(f"{path}.".startswith(f"{room}.") for room in PARTS):
        if trusted:
            import_from(os.curdir, path)
        try:
            return getattr(import_module(module), name)
        except (ImportError, AttributeError, SystemExit) as error:
            raise CheckpointError(f"there is no class {path}: install the package that defines it") from error
    if module not in sys.modules:
        package = path.partition(".")[0]
        if package == OWN:
            raise CheckpointError(
                f"there is no class {path} that a model may have: is the file for this release?"
            )
        raise CheckpointError(
            f"{path} is not of this package, and importing it would run the code of {package}. If you trust that code "
            f"and the file, name the package: --trust {package}, or trust={package!r} in Python"
        )
    # Not getattr: the __getattr__ of a module may import others.
    if name not in vars(sys.modules[module]):
        raise CheckpointError(f"there is no class {path}: install the package that defines it")
    return vars(sys.modules[module])[name]


def make(spec: Mapping[str, Any], kind: type[Kind], trust: Iterable[str] = ()) -> Kind:
    """Make the object that a spec describes; the parts in its arguments are made first.

    Args:
        spec: class path and arguments.
        kind: the class, or a base class, of the object.
        trust: packages, beside this one, whose modules may be imported; see `find_object`.

    Raises:
        CheckpointError: the class does not exist, may not be imported, is not a `kind`, or does not take the arguments.
    """
    path = spec.get("class_path") if isinstance(spec, Mapping) else spec
    init_args = spec.get("init_args", {}) if isinstance(spec, Mapping) else None
    trust = packages(trust)
    cls = find_object(path, trust)
    if isinstance(spec, Mapping) and (extra := set(spec) - {"class_path", "init_args"}):
        raise CheckpointError(f"{path} has {first_few(extra)} beside class_path and init_args: take it out")
    if not isinstance(init_args, Mapping):
        raise CheckpointError(f"the arguments of {path} must be a mapping, not {init_args!r}")
    # A checkpoint may come from an untrusted source, so it must not be able to call arbitrary code.
    if not (isinstance(cls, type) and issubclass(cls, kind)):
        raise CheckpointError(f"{path} is not a subclass of {kind.__name__}")
    arguments = {key: _make_value(value, kind, trust) for key, value in init_args.items()}
    with reported_as(CheckpointError, f"{path} does not take these arguments", TypeError, ValueError):
        return cls(**arguments)


def _make_value(value: Any, kind: type, trust: Iterable[str]) -> Any:
    if isinstance(value, Mapping) and "class_path" in value:
        return make(value, Part if issubclass(kind, Part) else kind, trust)  # readers may hold readers
    if isinstance(value, Mapping):
        return {key: _make_value(entry, kind, trust) for key, entry in value.items()}
    return [_make_value(entry, kind, trust) for entry in value] if isinstance(value, list) else value


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


def _texts(value: Any, nested: bool = False) -> Iterator[str]:
    """The texts in a value, but not those of parts in it; `nested`: also those."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and (nested or "class_path" not in value):
        for entry in value.values():
            yield from _texts(entry, nested)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _texts(entry, nested)
