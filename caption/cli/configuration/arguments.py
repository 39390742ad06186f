"""Options that several verbs share.

Each verb's module has `make_parser()` and `main(args)`, which returns an exit code. Wrong usage raises a `UserError` or
argparse's SystemExit with code 2; --help raises SystemExit with code 0.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from caption.errors import UserError, did_you_mean

# Texts keep their line breaks.
FORMAT: dict[str, Any] = {
    "formatter_class": argparse.RawDescriptionHelpFormatter,
    "allow_abbrev": False,
}

TRUST = "import classes of this package that a checkpoint names; its code runs; may be repeated"


INVALID_CHOICE = re.compile(r"argument (.+?): invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)
INVALID_NUMBER = re.compile(r"argument (.+?): invalid (int|float) value: (.*)", re.DOTALL)
NUMBERS = {"int": "a whole number", "float": "a number"}


class VerbParser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, with what a misspelt option or value was meant to be."""

    given: Sequence[str] = ()
    """The arguments that are being parsed."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.given = sys.argv[1:] if args is None else list(args)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{self._plain(message)} ({self.prog} --help lists the options)")

    def _plain(self, message: str) -> str:
        """argparse's message in other words, where it can be clearer."""
        if choice := INVALID_CHOICE.fullmatch(message):
            option, value, listed = choice.groups()
            choices = [name.strip(" '") for name in listed.split(",")]
            what = f"there is no {value!r}" if option[0] != "-" else f"{option} cannot be {value!r}"
            return f"{what}{did_you_mean(value, choices)}: choose from {', '.join(choices)}"
        if number := INVALID_NUMBER.fullmatch(message):
            return f"{number[1]} takes {NUMBERS[number[2]]}, not {number[3]}"
        known = set(_option_strings(self))
        if "are required: " in message:  # perhaps because one is misspelt
            options = [word.partition("=")[0] for word in self.given if word.startswith("--")]
            hints = [(word, did_you_mean(word, known)) for word in options if word not in known]
            misspelt = next((f"there is no option {word}{hint}" for word, hint in hints if hint), None)
            return misspelt or message
        before, _, extra = message.partition("unrecognized arguments: ")
        if before or not extra:
            return message.removeprefix("argument ")
        words = extra.split()
        unknown = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
        if unknown is None:
            return f"one argument too many: {words[0]}"
        return f"there is no option {unknown}{did_you_mean(unknown, known)}"


def _option_strings(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of a parser and of the nouns after its verb."""
    yield from parser._option_string_actions
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for noun in action.choices.values():
                yield from _option_strings(noun)


def verb_parser(verb: str, description: str, epilog: str | None = None) -> VerbParser:
    """A parser for a verb's arguments."""
    return VerbParser(f"caption {verb}", description=description, epilog=epilog, **FORMAT)


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
