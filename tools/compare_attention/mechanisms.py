"""The mechanisms that are compared: overlays in configs/attention."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from caption.errors import UserError

REFERENCE = "additive"
"""The mechanism that the others are compared with, and start from if their configuration has a `warm_start`."""


@dataclass(frozen=True)
class Mechanism:
    """An overlay over a configuration."""

    name: str
    paths: tuple[Path, Path]
    """The configuration, and the overlay."""
    equation: str
    """The header of the overlay, up to its source."""
    source: str
    warm: bool
    """Whether it starts from the trained model of `REFERENCE`."""
    own_encoder: bool
    """Whether the overlay names an encoder."""
    settings: tuple[Any, ...]
    """The content of the files, with that of the mechanism it starts from."""

    def digest(self, more: Sequence[str]) -> str:
        """Of all settings: a model that was trained with others is trained again."""
        text = json.dumps([*self.settings, *more], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_mechanisms(folder: Path, base: Path, names: Sequence[str] | None = None) -> dict[str, Mechanism]:
    """Overlays of a folder by name.

    An overlay of the subfolder that is called like `base` goes before the one of `folder`: its sizes go with `base`.

    Args:
        folder: configs/attention.
        base: the configuration over which they are laid.
        names: of the overlays; None = all of `folder` whose header lays them over `base`, or over nothing.

    Raises:
        UserError: there is none, or one cannot be read.
    """
    if names is None:
        paths = [path for path in sorted(folder.glob("*.yaml")) if base.name in _bases(path, base)]
    else:
        paths = [_overlay(folder, base, name) for name in names]
    if not paths:
        raise UserError(f"{folder} holds no configuration (*.yaml) of an attention mechanism")
    return {path.stem: _read(path, base, folder) for path in paths}


def _overlay(folder: Path, base: Path, name: str) -> Path:
    own = folder / base.stem / f"{name}.yaml"
    return own if own.exists() else folder / f"{name}.yaml"


def choose(mechanisms: dict[str, Mechanism], names: Sequence[str]) -> list[Mechanism]:
    """Mechanisms by name, behind the one that they start from.

    Raises:
        UserError: there is no mechanism of that name.
    """
    for name in names:
        if name not in mechanisms:
            raise UserError(f"no mechanism is called {name}: choose from {', '.join(mechanisms)}")
    chosen = [mechanisms[name] for name in dict.fromkeys(names)]
    if any(mechanism.warm for mechanism in chosen) and REFERENCE not in names:
        if REFERENCE not in mechanisms:
            raise UserError(f"there is no {REFERENCE}.yaml, from which a mechanism starts")
        chosen.append(mechanisms[REFERENCE])
    return sorted(chosen, key=lambda mechanism: mechanism.warm)


def _read(path: Path, base: Path, folder: Path) -> Mechanism:
    overlay = _load(path)
    model = overlay.get("model") or {}
    warm = bool(model.get("warm_start"))
    start = [_load(_overlay(folder, base, REFERENCE))] if warm else []
    equation, source = _described(_header(path))
    return Mechanism(
        name=path.stem,
        paths=(base, path),
        equation=equation,
        source=source,
        warm=warm,
        own_encoder="encoder" in model,
        settings=(_load(base), overlay, *start),
    )


def _header(path: Path) -> list[str]:
    """The lines of the comment at the top."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    return [line.lstrip("#").strip() for line in lines]


def _bases(path: Path, base: Path) -> list[str]:
    """The files over which the commands of a header lay it; `base` if it has no command."""
    return re.findall(r"-c configs/(\S+) -c configs/attention/", "\n".join(_header(path))) or [base.name]


def _described(lines: Iterable[str]) -> tuple[str, str]:
    """The first paragraph of a header, split at "Source:"."""
    first = " ".join(takewhile(bool, lines))
    equation, _, source = first.partition("Source:")
    return equation.strip(), source.strip()


def _load(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a configuration: it holds no options")
    return content
