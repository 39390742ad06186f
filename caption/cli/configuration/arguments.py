"""Options that several verbs share.

Each verb's module has `make_parser()` and `main(args)`, which returns an exit code. Wrong usage raises a `UserError` or
argparse's SystemExit with code 2; --help raises SystemExit with code 0.
"""

from __future__ import annotations

import argparse
from typing import Any

# Texts keep their line breaks.
FORMAT: dict[str, Any] = {
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}

TRUST = "import classes of this package that a checkpoint names; its code runs; may be repeated"


def verb_parser(verb: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """A parser for a verb's arguments."""
    return argparse.ArgumentParser(f"caption {verb}", description=description, epilog=epilog, **FORMAT)


def add_noun(nouns: Any, name: str, description: str, epilog: str | None = None) -> argparse.ArgumentParser:
    """A parser for what follows a verb, such as "flickr8k" after "prepare"; `nouns` comes from `add_subparsers`."""
    summary = description.partition("\n")[0]
    return nouns.add_parser(name, help=summary, description=description, epilog=epilog, **FORMAT)


def count(text: str) -> int:
    """A whole number from 1 up; argparse reports anything else."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 up")


def add_trust(parser: argparse.ArgumentParser) -> None:
    """The option that names the packages whose classes a checkpoint may name."""
    parser.add_argument("--trust", metavar="PACKAGE", action="append", default=[], help=TRUST)


def add_precision(parser: argparse.ArgumentParser) -> None:
    """The option for the precision of the weights in a file."""
    choices = ("float32", "float16", "bfloat16")
    parser.add_argument(
        "--precision", choices=choices, help="of the weights in the file; default: the model's"
    )
