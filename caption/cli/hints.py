"""Hints for messages about configurations: what a misspelt key or class was meant to be."""

from __future__ import annotations

import importlib
import inspect
import re
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping

from caption.errors import did_you_mean

UNKNOWN_KEY = re.compile(r"does not accept option '([\w.]+)'|unrecognized arguments: --([\w.]+)")
UNKNOWN_ARGUMENT = re.compile(r"([\w.]+): Option '(\w+)' is not accepted")
UNKNOWN_CLASS = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
UNKNOWN_MODULE = re.compile(r"No module named '(\w+)'")


def with_hint(message: str, parser: ArgumentParser) -> str:
    """A message of `error_messages.one_line`, with "(did you mean X?)" where something is like the misspelt word.

    Args:
        message: the message.
        parser: the parser that met the error; its options are the keys.
    """
    if found := UNKNOWN_KEY.search(message):
        hint = did_you_mean(found[1] or found[2], keys(parser))
    elif found := UNKNOWN_ARGUMENT.search(message):
        hint = did_you_mean(found[2], _arguments(found[1]))
    elif found := UNKNOWN_CLASS.search(message):
        hint = did_you_mean(found[2], _classes(found[1]))
    elif found := UNKNOWN_MODULE.search(message):
        hint = f" (put {found[1]}.py into the working directory, or install the package)"
    else:
        return message
    return f"{message[: found.end()]}{hint}{message[found.end() :]}"


def keys(parser: ArgumentParser) -> Iterator[str]:
    """The keys of a parser and of its subcommands, such as "trainer.max_epochs"."""
    for action in parser._actions:
        if isinstance(action.choices, Mapping):
            for subcommand in action.choices.values():
                yield from keys(subcommand)
        else:
            yield action.dest


def _arguments(path: str) -> list[str]:
    module, _, name = path.rpartition(".")
    return list(inspect.signature(getattr(importlib.import_module(module), name)).parameters)


def _classes(module: str) -> list[str]:
    return [name for name, value in vars(importlib.import_module(module)).items() if inspect.isclass(value)]
