"""`caption configs`: the configurations that come with the package."""

from __future__ import annotations

import argparse
import re
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
that have them all in name or header, or those of one group: caption configs training, caption configs flickr8k hard.
"""
GROUPS = {
    "": "models and data",
    "attention": "attention mechanisms, laid over another configuration: -c shapes_soft -c attention/dot",
    "attention/flickr8k_small": "what mechanisms change in flickr8k_small",
    "estimators": "of hard attention's gradient: -c shapes_hard -c estimators/leave_one_out",
    "presets": "settings of published models and code",
    "training": "ways to train, laid over another configuration: -c shapes_soft -c training/ema",
}
FAMILIES = {
    "scoring": "how a region is compared with the query",
    "alignment": "how scores become weights",
    "hard attention": "one place is drawn, and no others are read",
    "dimensionality": "weights for single features, or for channels",
    "queries": "none, several at once, or one after the other",
    "co-attention": "regions and the words so far attend to each other",
    "levels": "regions of several sizes",
    "representations": "several encodings of the same image or word",
    "self-attention": "regions and channels refine each other before a query comes",
    "decoders": "what asks the questions, and what becomes of the context",
    "pooling": "no attention, every word reads the same vector",
}
"""Of attention mechanisms, with what their members have in common. Each configuration names its own in its header."""


def main(args: list[str]) -> int:
    """Run `caption configs`."""
    words = make_parser().parse_args(args).words
    names = config_names()
    if len(words) == 1 and (Path(words[0]).suffix or _stem(words[0]) in names):
        print(_content(Path(find_config(words[0]))), end="")
        return DONE
    contents = {name: _content(config_folder() / f"{name}.yaml") for name in names}
    headers = {name: _header(content) for name, content in contents.items()}
    families = {name: family(content) for name, content in contents.items()}
    places = {name: place for place, name in enumerate((*GROUPS, *FAMILIES))}

    def place(name: str) -> tuple[int, int]:
        return places.get(_group(name), len(places)), places.get(families[name], len(places))

    in_order = sorted(names, key=place)
    found = [name for name in in_order if all(_mentions(name, headers[name], word) for word in words)]
    if len(words) == 1 and words[0].strip("/") in GROUPS:
        found = [name for name in in_order if name.startswith(f"{words[0].strip('/')}/")]
    if not found:
        choices = {*names, *(name.rpartition("/")[2] for name in names)}
        hint = did_you_mean(words[0], choices) if len(words) == 1 else ""
        raise UserError(f"no configuration mentions {' and '.join(words)}{hint}; `caption configs` lists all")
    width = max(map(len, found))
    for number, (group, members) in enumerate(groupby(found, _group)):
        print("\n" * (number > 0) + f"{GROUPS.get(group, group)}:")
        for kin, relatives in groupby(members, families.__getitem__):
            if kin:
                print(f" {kin}, {FAMILIES.get(kin, kin)}:")
            for name in relatives:
                print(f"  {name:{width}}  {_title(headers[name])}")
    return DONE


def make_parser() -> argparse.ArgumentParser:
    """The arguments of `caption configs`."""
    parser = verb_parser("configs", DESCRIPTION)
    parser.add_argument(
        "words", nargs="*", metavar="NAME|WORD", help="print this one, or search for the words"
    )
    return parser


def family(content: str) -> str:
    """The family of an attention mechanism that the header of its configuration names; "" if it names none."""
    named = re.search(r"^# Family: (.+)\.$", content, re.MULTILINE)
    return named[1] if named else ""


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _stem(name: str) -> str:
    return name.removeprefix("configs/")


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
