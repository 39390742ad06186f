"""`caption configs`: the configurations that come with the package."""

from __future__ import annotations

import argparse
from itertools import takewhile
from pathlib import Path

from caption.cli.configuration.arguments import verb_parser
from caption.cli.configuration.files import config_folder, config_names, find_config
from caption.cli.exit_codes import DONE

DESCRIPTION = """\
List the configurations that come with the package. `caption fit`, `features` and `check` take them by name: caption fit
-c shapes_soft. Those in attention/ are laid over another one: -c shapes_soft -c attention/dot. With a name, print that
configuration: caption configs shapes_soft > mine.yaml.
"""


def main(args: list[str]) -> int:
    options = make_parser().parse_args(args)
    if options.name:
        print(Path(find_config(options.name)).read_text(encoding="utf-8"), end="")
        return DONE
    names = config_names()
    width = max(map(len, names))
    for name in names:
        path = config_folder() / f"{name}.yaml"
        print(f"{name:{width}}  {_title(path.read_text(encoding='utf-8'))}")
    return DONE


def make_parser() -> argparse.ArgumentParser:
    parser = verb_parser("configs", DESCRIPTION)
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this configuration")
    return parser


def _title(text: str) -> str:
    """The first sentence of a configuration's header, without the comment sign."""
    comments = takewhile(lambda line: line.startswith("#"), text.splitlines())
    title = " ".join(line.lstrip("# ") for line in comments)
    return title.partition(". ")[0].partition("  ")[0].strip().rstrip(".:")
