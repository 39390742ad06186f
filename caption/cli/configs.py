"""`caption configs`: the configurations that come with the package."""

from __future__ import annotations

import argparse
from itertools import groupby, takewhile
from pathlib import Path

from caption.cli.configuration.arguments import verb_parser
from caption.cli.configuration.files import config_folder, config_names, find_config
from caption.cli.exit_codes import DONE
from caption.errors import UserError, did_you_mean

DESCRIPTION = """\
List the configurations that come with the package. `caption fit`, `features` and `check` take them by name: caption fit
-c shapes_soft. Those in attention/, estimators/ and training/ are laid over another one: -c shapes_soft -c
attention/dot. With the name of one, print it: caption configs shapes_soft > mine.yaml. With other words, list those
that have them all in name or header: caption configs training/, caption configs flickr8k hard.
"""
GROUPS = {
    "": "models and data",
    "attention": "attention mechanisms, laid over another configuration: -c shapes_soft -c attention/dot",
    "attention/flickr8k_small": "what mechanisms change in flickr8k_small",
    "estimators": "of hard attention's gradient: -c shapes_hard -c estimators/leave_one_out",
    "presets": "settings of published models and code",
    "training": "ways to train, laid over another configuration: -c shapes_soft -c training/ema",
}


def main(args: list[str]) -> int:
    """Run `caption configs`."""
    words = make_parser().parse_args(args).words
    names = config_names()
    if len(words) == 1 and (Path(words[0]).suffix or words[0].removeprefix("configs/") in names):
        print(Path(find_config(words[0])).read_text(encoding="utf-8"), end="")
        return DONE
    headers = {
        name: _header((config_folder() / f"{name}.yaml").read_text(encoding="utf-8")) for name in names
    }
    found = [name for name in names if all(_mentions(name, headers[name], word) for word in words)]
    found.sort(key=_group)
    if not found:
        hint = did_you_mean(words[0], {*names, *(name.rpartition("/")[2] for name in names)})
        raise UserError(f"no configuration mentions {' and '.join(words)}{hint}; `caption configs` lists all")
    width = max(map(len, found))
    for number, (group, members) in enumerate(groupby(found, _group)):
        print("\n" * (number > 0) + f"{GROUPS.get(group, group)}:")
        for name in members:
            print(f"  {name:{width}}  {_title(headers[name])}")
    return DONE


def make_parser() -> argparse.ArgumentParser:
    """The arguments of `caption configs`."""
    parser = verb_parser("configs", DESCRIPTION)
    parser.add_argument(
        "words", nargs="*", metavar="NAME|WORD", help="print this one, or search for the words"
    )
    return parser


def _group(name: str) -> str:
    return name.rpartition("/")[0]


def _mentions(name: str, header: str, word: str) -> bool:
    return word.lower() in f"{name}\n{header}".lower()


def _header(text: str) -> str:
    """The comments with which a configuration begins, without their signs and without commands, which are indented."""
    comments = takewhile(lambda line: line.startswith("#"), text.splitlines())
    return " ".join(line.lstrip("# ") for line in comments if not line.startswith("#   "))


def _title(header: str) -> str:
    """The first sentence of a header."""
    return header.partition(". ")[0].partition("  ")[0].strip().rstrip(".:")
