"""The mechanisms that are compared: overlays in configs/attention, and how they become models."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from caption.errors import UserError

WARM = "additive"
"""The mechanism whose trained model the others start from, if their configuration has a `warm_start`."""


@dataclass(frozen=True)
class Mechanism:
    """An overlay over a configuration."""

    name: str
    path: Path
    base: Path
    """The configuration over which it is laid."""
    equation: str
    """The header of the file, up to its source."""
    source: str
    trainer: dict[str, Any] = field(hash=False)
    """The trainer's options, those of `base` included."""
    warm: bool
    """Whether it starts from the trained model `WARM`."""
    digest: str
    """Of all settings: a model that was trained with others is trained again."""

    def epochs(self, epochs: int) -> int:
        """How long it is trained: its own share of the budget, the quotient of `max_epochs` here and in `base`."""
        share = self.trainer["max_epochs"] / _load(self.base)["trainer"]["max_epochs"]
        return max(1, round(epochs * share))


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
    warm = next((path for path in paths if path.stem == WARM), None)
    return {path.stem: _read(path, base, warm) for path in paths}


def _overlay(folder: Path, base: Path, name: str) -> Path:
    own = folder / base.stem / f"{name}.yaml"
    return own if own.exists() else folder / f"{name}.yaml"


def chosen(mechanisms: dict[str, Mechanism], names: Sequence[str]) -> list[Mechanism]:
    """Mechanisms by name, behind the one that they start from.

    Raises:
        UserError: there is no mechanism of that name.
    """
    for name in names:
        if name not in mechanisms:
            raise UserError(f"no mechanism is called {name}: choose from {', '.join(mechanisms)}")
    found = [mechanisms[name] for name in dict.fromkeys(names)]
    if any(each.warm for each in found) and WARM not in names:
        if WARM not in mechanisms:
            raise UserError(f"{found[0].path.parent} lacks {WARM}.yaml, from which a mechanism starts")
        found.append(mechanisms[WARM])
    return sorted(found, key=lambda each: each.warm)


def _read(path: Path, base: Path, warm_path: Path | None) -> Mechanism:
    overlay = _load(path)
    equation, source = _described(_header(path))
    warm = bool((overlay.get("model") or {}).get("warm_start"))
    settings = [_load(base), overlay]
    if warm and warm_path is not None:
        settings.append(_load(warm_path))
    text = json.dumps(settings, sort_keys=True)
    return Mechanism(
        name=path.stem,
        path=path,
        base=base,
        equation=equation,
        source=source,
        trainer=_load(base)["trainer"] | (overlay.get("trainer") or {}),
        warm=warm,
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
    )


def _header(path: Path) -> list[str]:
    """The lines of the comment at the top."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    return [line.lstrip("#").strip() for line in lines]


def _bases(path: Path, base: Path) -> list[str]:
    """The files over which the commands of a header lay it; `base` if it has no command."""
    return re.findall(r"-c configs/(\S+) -c configs/attention/", "\n".join(_header(path))) or [base.name]


def _described(lines: Iterable[str]) -> tuple[str, str]:
    """The first paragraph of a header -> what stands before "Source:", and behind it."""
    first = " ".join(takewhile(bool, lines))
    equation, _, source = first.partition("Source:")
    return equation.strip(), source.strip()


def _load(path: Path) -> dict[str, Any]:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path} is not a configuration: it holds no options")
    return found
