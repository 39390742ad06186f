"""Configuration files on the command line: found by path or name, and laid over each other.

The names are those of the configurations that come with the package: `shapes_soft`, `attention/dot`. In YAML files,
class paths may name modules of the working directory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from caption.errors import UserError, did_you_mean

OPTIONS = ("-c", "--config")
READER = ("--data.reader", "--data.reader.class_path")


def config_folder() -> Path:
    """The folder configs/, which is inside the package when it is installed and beside it in a clone."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def config_names() -> list[str]:
    """Names of the configurations that come with the package; overlays and presets have their folder before them."""
    folder = config_folder()
    files = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.yaml")]
    return sorted((file.as_posix() for file in files), key=lambda name: ("/" in name, name))


def find_config(given: str) -> str:
    """The path of a configuration file.

    Args:
        given: a path, or a name from `config_names`, also in the form configs/NAME.yaml. A file of the working
            directory takes precedence.

    Raises:
        UserError: there is neither such a file nor such a name.
    """
    if os.path.isfile(os.path.expanduser(given)):
        return given
    name = given.removeprefix("configs/").removesuffix(".yaml")
    if name in (names := config_names()):
        return str(config_folder() / f"{name}.yaml")
    raise UserError(
        f"the configuration '{given}' does not exist, neither as a file nor by name{did_you_mean(name, names)}. "
        "Check the path; `caption configs` lists the names."
    )


def read_yaml(path: str) -> Any:
    """The content of a YAML file.

    Raises:
        UserError: it is unreadable or not YAML; the message gives the line.
    """
    # Not at the top: --help of verbs that use this module must not wait for NumPy.
    from caption.data.files import YamlError, load_yaml, read_text

    try:
        return load_yaml(read_text(path))
    except YamlError as error:
        raise UserError(f"{path} is not valid YAML: {error}") from error


def import_from_working_directory() -> None:
    """Let class paths name modules of the working directory, after those that are installed.

    Python does this for scripts and notebooks, but not for installed commands.
    """
    here = str(Path.cwd())
    if not {"", here} & set(sys.path):
        sys.path.append(here)


def reader_class(section: Any) -> str | None:
    """The name of the reader's class in a configuration; None if it names none."""
    data = section.get("data") if isinstance(section, Mapping) else None
    reader = data.get("reader") if isinstance(data, Mapping) else None
    path = reader.get("class_path") if isinstance(reader, Mapping) else reader
    return path.rpartition(".")[2] if isinstance(path, str) else None


def replaced(classes: Sequence[str | None]) -> int:
    """How many of the first layers have a reader of another class than the last one, and lose it.

    The arguments of a reader are the files of a data set. Another reader must not inherit them.

    Args:
        classes: the reader's class in each layer; None where a layer names none.
    """
    named = [place for place, name in enumerate(classes) if name]
    others = [place for place in named if classes[place] != classes[named[-1]]]
    return next(place for place in named if place > others[-1]) if others else 0


def without_reader(config: Any) -> Any:
    """A configuration without data.reader."""
    if not (isinstance(config, Mapping) and isinstance(config.get("data"), Mapping)):
        return config
    return {**config, "data": {key: value for key, value in config["data"].items() if key != "reader"}}


def find_configs(args: Sequence[str]) -> list[str]:
    """A command line of Lightning's with the paths of its configurations. Those whose reader a later layer replaces
    become YAML text without it.

    Raises:
        UserError: see `find_config` and `read_yaml`.
    """
    import yaml

    args = list(args)
    layers: dict[int, Any] = {}  # the contents of configurations by place in `args`
    classes: dict[int, str | None] = {}
    for place, (option, value) in enumerate(option_pairs(args)):
        if option in OPTIONS:
            path = find_config(value)
            args[place] = _with_value(args[place], path)
            layers[place] = read_yaml(path)
            classes[place] = reader_class(layers[place])
        elif option in READER:
            classes[place] = value.rpartition(".")[2]
    for place in list(classes)[: replaced(list(classes.values()))]:
        if place in layers and (left := without_reader(layers[place])) != layers[place]:
            args[place] = _with_value(args[place], yaml.safe_dump(left, sort_keys=False))
    return args


def option_pairs(args: Sequence[str]) -> list[tuple[str, str]]:
    """(option, value) that each argument completes: `--option=value`, or `value` after `--option`; else two blanks."""
    pairs = []
    for before, arg in zip(("", *args), args, strict=False):
        option, equals, value = arg.partition("=")
        if equals and option.startswith("--"):
            pairs.append((option, value))
        else:
            pairs.append((before, arg) if before.startswith("-") and "=" not in before else ("", ""))
    return pairs


def _with_value(arg: str, value: str) -> str:
    """An argument `--option=old` or `old` with another value."""
    option, equals, _ = arg.partition("=")
    return f"{option}={value}" if equals and option.startswith("--") else value
