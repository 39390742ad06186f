"""The mechanisms that are compared: overlays in configs/attention."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml

from caption.cli.configs import FAMILIES, family
from caption.errors import UserError

REFERENCE = "additive"
"""The mechanism that the others are compared with, and start from if their configuration has a `warm_start`."""


@dataclass(frozen=True)
class Mechanism:
    """An overlay over a configuration."""

    name: str
    paths: tuple[Path, ...]
    """The configuration, what is laid over it for all mechanisms, and the overlay."""
    equation: str
    """The header of the overlay, up to its source."""
    source: str
    family: str
    """Of `caption.cli.configs.FAMILIES`; "" if the header names none."""
    warm: bool
    """Whether it starts from the trained model of `REFERENCE`."""
    regions: str
    """The folder of its stored regions: one for all overlays that name no encoder, and for those that name the same."""
    learns_encoder: tuple[str, ...]
    """Arguments with which its encoder learns from images, as long as in the configuration below all overlays, if it is
    of another class than the configuration's, whose stored regions and weights are not its own; else none."""
    settings: tuple[Any, ...]
    """The content of the files, with that of the mechanism it starts from."""

    @property
    def title(self) -> str:
        """The first sentence of the equation."""
        return self.equation.partition(". ")[0].rstrip(".:")

    def digest(self, more: Sequence[str]) -> str:
        """Of all settings: a model that was trained with others is trained again."""
        return _digest([*self.settings, *more])


def _digest(settings: Sequence[Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def read_mechanisms(
    folder: Path, base: Path, names: Sequence[str] | None = None, over: Sequence[Path] = ()
) -> dict[str, Mechanism]:
    """Overlays of a folder by name.

    An overlay of the subfolder that is called like `base` goes before the one of `folder`: its sizes go with `base`.

    Args:
        folder: configs/attention.
        base: the configuration over which they are laid.
        names: of the overlays; None = all of `folder` whose header lays them over `base`, or over nothing.
        over: configurations that are laid over `base` for all mechanisms.

    Raises:
        UserError: the folder has none, or one cannot be read.
    """
    if names is None:
        paths = [path for path in sorted(folder.glob("*.yaml")) if base.name in _bases(path, base)]
    else:
        paths = [_overlay(folder, base, name) for name in names]
    if not paths:
        raise UserError(f"{folder} holds no configuration (*.yaml) of an attention mechanism")
    return {path.stem: _read(path, (base, *over), folder) for path in paths}


def _overlay(folder: Path, base: Path, name: str) -> Path:
    own = folder / base.stem / f"{name}.yaml"
    return own if own.exists() else folder / f"{name}.yaml"


def choose(mechanisms: dict[str, Mechanism], names: Sequence[str]) -> list[Mechanism]:
    """Mechanisms by name, behind the one that they start from.

    Raises:
        UserError: no mechanism has one of these names.
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


def by_family(names: Iterable[str], mechanisms: Mapping[str, Mechanism]) -> dict[str, list[str]]:
    """Names by family, in the order of `FAMILIES`; last those of no family, under ""."""
    families = {name: mechanisms[name].family if name in mechanisms else "" for name in names}
    return {
        kin: members
        for kin in dict.fromkeys([*FAMILIES, *families.values()])
        if (members := [name for name in families if families[name] == kin])
    }


def _read(path: Path, under: Sequence[Path], folder: Path) -> Mechanism:
    base, overlay = _load(under[0]), _load(path)
    model = overlay.get("model") or {}
    warm = bool(model.get("warm_start"))
    start = [_load(_overlay(folder, under[0], REFERENCE))] if warm else []
    equation, source = _described(_header(path))
    kin = (
        path if path.parent == folder else folder / path.name
    )  # overlays for one base are of the same family
    shared = base["model"]["encoder"]["class_path"]
    learns: tuple[str, ...] = ()
    if len(under) > 1 and model.get("encoder", {}).get("class_path", shared) != shared:
        learns = (
            "--data.features=null",
            f"--data.captions_per_image={base['data']['captions_per_image']}",
            f"--model.encoder_learning_rate={base['model']['encoder_learning_rate']}",
            f"--model.scheduler.init_args.T_max={base['model']['scheduler']['init_args']['T_max']}",
            f"--trainer.max_epochs={base['trainer']['max_epochs']}",
        )
    return Mechanism(
        name=path.stem,
        paths=(*under, path),
        equation=equation,
        source=source,
        family=family(kin.read_text(encoding="utf-8")) if kin.exists() else "",
        warm=warm,
        regions=_digest([model["encoder"]])[:8] if "encoder" in model else "all",
        learns_encoder=learns,
        settings=(*map(_load, under), overlay, *start, *learns),
    )


def _header(path: Path) -> list[str]:
    """The lines of the comment at the top."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    return [line.lstrip("#").strip() for line in lines]


def _bases(path: Path, base: Path) -> list[str]:
    """The files over which the commands of a header lay it; `base` if it has no command."""
    return re.findall(r"-c configs/(\S+) -c configs/attention/", "\n".join(_header(path))) or [base.name]


def _described(lines: Iterable[str]) -> tuple[str, str]:
    """The first paragraph of a header up to the family, split at "Source:"."""
    first = " ".join(takewhile(bool, lines))
    equation, _, source = first.partition("Family:")[0].partition("Source:")
    return equation.strip(), source.strip()


def _load(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise UserError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is not a configuration: it holds no options")
    return content
