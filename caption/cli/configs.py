"""`caption configs`: list the configurations that come with the package."""

from __future__ import annotations

import argparse
from itertools import takewhile
from pathlib import Path

from caption.cli.configuration.config_files import config_folder, config_names, find_config
from caption.cli.exit_codes import DONE

HELP = """\
List the configurations that come with the package. `caption fit`, `features` and `check` take them by name: caption
fit -c shapes_soft. Those in attention/, estimators/ and training/ are laid over another one: -c shapes_soft -c
attention/dot. With a full name, print that configuration: caption configs shapes_soft > mine.yaml. With a part of a
name, list those that have it: caption configs training/.
"""


def main(options: argparse.Namespace) -> int:
    """Run `caption configs`."""
    part = options.name
    names = [name for name in config_names() if part in name]
    if not names or part.removeprefix("configs/") in names:
        print(Path(find_config(part)).read_text(encoding="utf-8"), end="")
        return DONE
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {_title(config_folder() / f'{name}.yaml')}")
    return DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `caption configs`."""
    help_ = "print the configuration of this name, or list those whose names have this part"
    parser.add_argument("name", nargs="?", default="", metavar="NAME", help=help_)


def _title(path: Path) -> str:
    """The first sentence of the comment with which a configuration begins."""
    lines = takewhile(lambda line: line.startswith("#"), path.read_text(encoding="utf-8").splitlines())
    return " ".join(line.lstrip("# ") for line in lines).partition(". ")[0].rstrip(".:")
