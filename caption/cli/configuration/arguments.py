"""Options that several verbs share.

Each verb's module has `HELP`, the text of --help, `add_arguments(parser)`, and `main(options)`, which returns an exit
code. Wrong usage raises a `UserError`; --help raises SystemExit with code 0.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Any, NoReturn

from caption.core.errors import UserError, did_you_mean

# Texts keep their line breaks.
FORMAT: dict[str, Any] = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}

FILE = re.compile(r"-[^-].*\.[A-Za-z]\w*")
"""A name of a file that begins with a dash."""

TRUST = "allow classes of this package, or weights of this name, in a checkpoint; their code runs; may be repeated"


class VerbParser(argparse.ArgumentParser):
    """A parser that raises a UserError, with a suggestion for a misspelt option."""

    given: Sequence[str] = ()
    """The arguments that are being parsed."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.given = sys.argv[1:] if args is None else list(args)
        for word in takewhile("--".__ne__, self.given):
            is_name = word.startswith("-") and word not in {"-", *_option_strings(self)}
            if is_name and os.path.lexists(word):
                raise UserError(f"the file '{word}' begins with a dash, like an option: write './{word}'")
        return super().parse_known_args(args, namespace)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """The options. For a verb with --config, `overrides` has the arguments that override entries of it.

        `given` has the arguments that differ from their defaults, as the user writes them: {"title": "--no-title"}.
        """
        options, overrides = self.parse_known_args(args, namespace)
        if overrides and "config" not in options:
            self.error(f"unrecognized arguments: {' '.join(overrides)}")
        words = {word.partition("=")[0] for word in self.given}
        options.given = {
            action.dest: next(
                (name for name in action.option_strings if name in words),
                (*action.option_strings, action.dest)[0],
            )
            for action in self._actions
            if action.dest in options and getattr(options, action.dest) != action.default
        }
        options.overrides = overrides
        return options

    def error(self, message: str) -> NoReturn:
        option_strings = set(_option_strings(self))
        options = [word.partition("=")[0] for word in self.given if word.startswith("-")]
        unknown = [option for option in options if option not in option_strings]
        meant = {option: did_you_mean(option, option_strings) for option in unknown}
        hints = chain(
            (f"; there is no option {option}{hint}" for option, hint in meant.items() if hint),
            (f"; if {word} is a file, write ./{word}" for word in unknown if FILE.fullmatch(word)),
        )
        message = message.removeprefix("argument ") + next(hints, "")
        raise UserError(f"{message} ({self.prog} --help lists the options)")


def _option_strings(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of a parser and of the nouns after its verb."""
    yield from parser._option_string_actions
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for noun in action.choices.values():
                yield from _option_strings(noun)


def verb_parser(verb: str, module: Any) -> VerbParser:
    """The parser of a verb, given its module."""
    parser = VerbParser(f"caption {verb}", description=module.HELP, **FORMAT)
    module.add_arguments(parser)
    return parser


def add_noun(nouns: Any, name: str, description: str) -> argparse.ArgumentParser:
    """The parser of a noun after a verb, such as "sgrvinod" after "import"; `nouns` comes from `add_subparsers`."""
    return nouns.add_parser(name, help=description.partition("\n")[0], description=description, **FORMAT)


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """A type of arguments: whole numbers between two bounds; argparse reports anything else."""
    bounds = f"from {least} " + ("up" if most is None else f"to {most:,}")

    def parse(text: str) -> int:
        if text.isdecimal() and least <= int(text) and (most is None or int(text) <= most):
            return int(text)
        raise argparse.ArgumentTypeError(f"{text} is not a whole number {bounds}")

    return parse


count = whole_number(1)


def add_config(add: Callable[..., Any], use: str) -> None:
    """The option that names configurations, given the parser's `add_argument`."""
    help_ = f"configuration {use}; may be repeated"
    add("--config", "-c", metavar="YAML", action="append", required=True, help=help_)


def add_trust(parser: argparse.ArgumentParser) -> None:
    """The option that names the packages whose classes a checkpoint may name."""
    parser.add_argument("--trust", metavar="PACKAGE", action="append", default=[], help=TRUST)


def add_device(parser: argparse.ArgumentParser) -> None:
    """The option for the device of the models."""
    help_ = "cpu, cuda, cuda:1, mps; default auto: a GPU of CUDA if there is one, otherwise cpu"
    parser.add_argument("--device", default="auto", metavar="D", help=help_)


def add_transformers(parser: argparse.ArgumentParser) -> None:
    """The options for models of transformers."""
    help_ = "what a model of transformers is asked, or the text that its captions continue; default: its first question"
    parser.add_argument("--question", metavar="TEXT", help=help_)
    help_ = "of the weights of a model of transformers, such as bfloat16; default: that of its files"
    parser.add_argument("--dtype", metavar="D", help=help_)


def of_transformers(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `load` for models of transformers that are given."""
    return {name: getattr(options, name) for name in ("question", "dtype") if name in options.given}


def add_precision(parser: argparse.ArgumentParser) -> None:
    """The option for the precision of the weights in a file."""
    help_ = "of the weights in the file; default: the model's"
    parser.add_argument("--precision", choices=("float32", "float16", "bfloat16"), help=help_)
