"""Class paths in files from strangers: which modules may be imported for them.

Importing a module runs its code. A class path in a checkpoint is therefore imported only if its module belongs to this
package or to a package that the user trusts. A module that is already imported may be named, too: nothing runs.
A configuration is the user's own, and all its class paths are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from typing import Any

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


def find_object(path: str, trust: Iterable[str] = ()) -> Any:
    """What a class path names. It need not be a class: check that.

    Args:
        path: module and name.
        trust: packages, modules or class paths, beside this package, whose modules may be imported.

    Raises:
        CheckpointError: it does not exist, or its module is not imported and not trusted.
    """
    trust = [trust] if isinstance(trust, str) else [*trust]
    module, _, name = path.rpartition(".")
    if not module or not all(map(str.isidentifier, path.split("."))):
        raise CheckpointError(f"a class path such as caption.attention.Softmax is expected, not {path!r}")
    if any(module == known or path == known or module.startswith(f"{known}.") for known in (OWN, *trust)):
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
