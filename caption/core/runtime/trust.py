"""Class paths in untrusted files: the modules that may be imported for them, and the objects that are made from them.

Importing a module runs its code. A class path in a checkpoint is therefore imported only if its module is one of this
package that defines parts, or belongs to a package that the user trusts. It may also name a module that is already
imported, since no code runs. A configuration is written by the user, and all its class paths are imported.

The working directory may be untrusted. Only those of its modules that the user names, and the modules that these
import, can be imported.
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
"""Packages in this one whose classes a checkpoint may name. Importing their modules has no other effect."""


class WorkingDirectory(MetaPathFinder):
    """Finds modules in a folder: those with the given names, and those that their files import.

    Python searches the working directory for modules when it runs a script or a notebook, but not when it runs an
    installed command. This finder is the last one in the search.
    """

    def __init__(self) -> None:
        self.folder = os.curdir
        self.names: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The location of a module in the folder, if it is in `names`; adds the modules that its files import to
        `names`."""
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
    except (UserError, SyntaxError, ValueError):  # Python will report it
        return set()
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in names}


_finder = WorkingDirectory()


def import_from(folder: str, values: Any) -> None:
    """Allow importing the modules of a folder that the user's values name, with lower priority than installed modules.

    Args:
        folder: the working directory.
        values: the user's values, in plain types: class paths, and functions as `module:function`, at any depth.
    """
    _finder.folder = os.path.abspath(folder)
    for text in _texts(values, nested=True):
        if (match := NAMED.fullmatch(text)) and match[1] != OWN and not os.path.exists(text):
            _finder.names.add(match[1])
    if _finder not in sys.meta_path:
        sys.meta_path.append(_finder)


NAMED = re.compile(r"([^\W\d]\w*)[.:][\w.:]+")


def class_paths(spec: Any) -> Iterator[str]:
    """All class paths in a spec or configuration, including nested ones."""
    if isinstance(spec, Mapping):
        if isinstance(spec.get("class_path"), str):
            yield spec["class_path"]
        for value in spec.values():
            yield from class_paths(value)
    elif isinstance(spec, (list, tuple)):
        for value in spec:
            yield from class_paths(value)


def packages(trust: Iterable[str]) -> tuple[str, ...]:
    """Trusted packages, which may be given as a single name."""
    return (trust,) if isinstance(trust, str) else tuple(trust)


def find_object(path: Any, trust: Iterable[str] = ()) -> Any:
    """The object that a class path names; callers must check that it is a class.

    Args:
        path: module and name.
        trust: packages, modules or class paths, besides this package, whose modules may be imported.

    Raises:
        CheckpointError: the object does not exist; its module is neither imported nor trusted; importing it raises
            ImportError or SystemExit.
    """
    if not isinstance(path, str) or "." not in path or not all(map(str.isidentifier, path.split("."))):
        raise CheckpointError(f"a class path such as caption.attention.Softmax is expected, not {path!r}")
    module, _, name = path.rpartition(".")
    trusted = [package for package in packages(trust) if f"{path}.".startswith(f"{package}.")]
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
                f"there is no class {path} for parts of a model: was the file written by another release?"
            )
        raise CheckpointError(
            f"{path} is not of this package, and importing it would run the code of {package}. If you trust that code "
            f"and the file, name the package: --trust {package}, or trust={package!r} in Python"
        )
    # Not getattr: the __getattr__ of a module may import other modules.
    if name not in vars(sys.modules[module]):
        raise CheckpointError(f"there is no class {path}: install the package that defines it")
    return vars(sys.modules[module])[name]


def make(spec: Mapping[str, Any], kind: type[Kind], trust: Iterable[str] = ()) -> Kind:
    """Make the object that a spec describes; the parts in its arguments are made first.

    Args:
        spec: class path and arguments.
        kind: the class, or a base class, of the object.
        trust: packages, besides this one, whose modules may be imported; see `find_object`.

    Raises:
        CheckpointError: the class does not exist, may not be imported, is not a `kind`, or does not take the arguments.
    """
    path = spec.get("class_path") if isinstance(spec, Mapping) else spec
    init_args = spec.get("init_args", {}) if isinstance(spec, Mapping) else None
    trust = packages(trust)
    cls = find_object(path, trust)
    if isinstance(spec, Mapping) and (extra := set(spec) - {"class_path", "init_args"}):
        raise CheckpointError(f"{path} has {first_few(extra)} besides class_path and init_args: remove it")
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
        return make(value, Part if issubclass(kind, Part) else kind, trust)  # readers may contain readers
    if isinstance(value, Mapping):
        return {key: _make_value(entry, kind, trust) for key, entry in value.items()}
    return [_make_value(entry, kind, trust) for entry in value] if isinstance(value, list) else value


def check_texts(value: Any, trust: Iterable[str] = ()) -> None:
    """Refuse a spec, or specs in dicts and lists, that has text in place of a part.

    `make` passes such text on to the constructor, but a parser of configurations imports the class that it names.

    Raises:
        CheckpointError: an argument is text, but its annotation does not allow text.
    """
    if isinstance(value, Mapping) and "class_path" in value:
        path, arguments = value["class_path"], value.get("init_args", {})
        cls = find_object(path, trust)
        for name, argument in arguments.items():
            if (text := next(_texts(argument), None)) is not None and not _is_plain(_hint(cls, name)):
                raise CheckpointError(
                    f"the argument {name} of {path} is text, {text!r}, but its annotation does not allow str"
                )
        check_texts(arguments, trust)
    elif isinstance(value, (Mapping, list, tuple)):
        for entry in value.values() if isinstance(value, Mapping) else value:
            check_texts(entry, trust)


def _hint(cls: type, name: str) -> Any:
    """The annotation of a constructor's argument, which may be one of a base class; None if there is no annotation."""
    for base in cls.__mro__:
        if (initialise := vars(base).get("__init__")) is not None:
            parameters = inspect.signature(initialise).parameters
            if name in parameters:
                with suppress(NameError):  # a name that is imported only for type checking
                    return get_type_hints(initialise).get(name)
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
                break
    return None


def _is_plain(hint: Any) -> bool:
    """Whether an annotation allows only plain values, and not parts."""
    if hint is None:
        return False
    if get_origin(hint) is Literal:
        return True
    inner = [kind for kind in get_args(hint) if kind is not ...]
    return all(map(_is_plain, inner)) if inner else hint in (str, int, float, bool, type(None))


def _texts(value: Any, nested: bool = False) -> Iterator[str]:
    """The texts in a value, without those of parts in it unless `nested`."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping) and (nested or "class_path" not in value):
        for entry in value.values():
            yield from _texts(entry, nested)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _texts(entry, nested)
