"""Configuration files: found by path or name, read, and laid over each other.

The names are those of the configurations that come with the package: `shapes_soft`, `attention/dot`. In YAML files,
class paths may name modules of the working directory.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from caption.core.errors import UserError, did_you_mean
from caption.core.runtime.trust import import_from

OPTIONS = ("-c", "--config")
READER = ("--data.reader", "--data.reader.class_path")


def config_folder() -> Path:
    """The folder configs/, which is inside the package when it is installed and beside it in a clone."""
    package = Path(__file__).resolve().parents[2]
    installed = package / "configs"
    return installed if installed.is_dir() else package.parent / "configs"


def config_names() -> list[str]:
    """Names of the configurations that come with the package; overlays and presets have their folder before them."""
    folder = config_folder()
    files = [path.relative_to(folder).with_suffix("") for path in folder.rglob("*.yaml")]
    return sorted((file.as_posix() for file in files), key=lambda name: ("/" in name, name))


def find_config(name: str) -> str:
    """The path of a configuration file.

    Args:
        name: a path, or one of `config_names`, also in the form configs/NAME.yaml. A file of the working
            directory takes precedence.

    Raises:
        UserError: there is neither such a file nor such a name.
    """
    path = os.path.expanduser(name)
    if os.path.exists(path) and not os.path.isdir(path):
        return name
    stem = name.removeprefix("configs/").removesuffix(".yaml")
    if stem in (names := config_names()):
        return str(config_folder() / f"{stem}.yaml")
    raise UserError(
        f"the configuration '{name}' does not exist, neither as a file nor by name{did_you_mean(stem, names)}. "
        "Check the path; `caption configs` lists the names."
    )


def read_config(name: str) -> dict[str, Any]:
    """The content of a configuration, given by path or name.

    Raises:
        UserError: it does not exist, is unreadable, not YAML (with the line), or not a mapping of sections.
    """
    # Not at the top: --help of verbs that use this module must not wait for NumPy.
    from caption.data.text_files import read_yaml

    path = find_config(name)
    config = read_yaml(path)
    if not isinstance(config, dict) or not all(
        isinstance(config.get(section) or {}, dict) for section in ("model", "data")
    ):
        raise UserError(f"'{path}' is not a configuration: it needs sections, such as model and data.")
    return config


def read_layers(names: Sequence[str], options: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Configurations, each to be laid over those before it.

    The arguments of a reader are the files of a data set, which another reader must not inherit. So layers below one
    that names a reader lose their own; options count as the topmost layer.

    Afterwards, modules of the working directory that they name can be imported.

    Args:
        names: paths or names.
        options: of the command line.

    Raises:
        UserError: see `read_config`.
    """
    layers: list[dict[str, Any]] = []
    for config in map(read_config, names):
        if _names_reader(config):
            layers = [_without_reader(layer) for layer in layers]
        layers.append(config)
    pairs = option_pairs(options)
    if any(option in READER for option, _ in pairs):
        layers = [_without_reader(layer) for layer in layers]
    import_from(os.curdir, [layers, [_plain(value) for option, value in pairs if option not in OPTIONS]])
    return layers


def _plain(value: str) -> Any:
    """The value of an option, which may be YAML."""
    from caption.data.text_files import YamlError, load_yaml

    try:
        return load_yaml(value)
    except YamlError:
        return value


def with_layers(args: Sequence[str]) -> list[str]:
    """A command line of Lightning's with the contents of its configurations, as YAML, in place of their names.

    Raises:
        UserError: see `read_config`.
    """
    import yaml

    pairs = option_pairs(args)
    layers = iter(read_layers([value for option, value in pairs if option in OPTIONS], args))
    args = list(args)
    for place, (option, _) in enumerate(pairs):
        if option in OPTIONS:
            before = args[place].partition("=")[0]
            text = yaml.safe_dump(next(layers), sort_keys=False)
            args[place] = f"{option}={text}" if before == option else text
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


def _names_reader(config: Mapping[str, Any]) -> bool:
    reader = (config.get("data") or {}).get("reader")
    return isinstance(reader, str) or (isinstance(reader, dict) and "class_path" in reader)


def _without_reader(config: dict[str, Any]) -> dict[str, Any]:
    data = {key: value for key, value in (config.get("data") or {}).items() if key != "reader"}
    return {**config, "data": data} if data else {key: config[key] for key in config if key != "data"}
