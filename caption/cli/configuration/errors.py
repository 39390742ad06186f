"""Errors of a configuration and of the user's own code, in one line."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from sysconfig import get_path

from caption.core.errors import UserError, did_you_mean, kind_and_reason

NOISE = re.compile(
    r"Does not validate against.*|Subtypes: .*|Errors:|Expected a <class 'NoneType'>|Given value type: .*"
    r"|Given value: (\{|Namespace|NestedArg).*|Got value: Namespace\(.*"
    r"|Type typing\.Callable\[.*?\] expects a function or a callable class: "
)
"""Parts of jsonargparse's messages that show Python types or all arguments of a part; they are removed."""
UNKNOWN = re.compile(r"Option '(\w+)'|option '([\w.]+)'|arguments: --([\w.]+)|has no attribute '(\w+)'")
"""How jsonargparse names an unknown argument, entry of a configuration, option and class."""
LIBRARIES = ("<", str(Path(__file__).parents[2]), get_path("stdlib"))
"""Beginnings of the file names of code that is not the user's: generated code, this package, Python."""


def jsonargparse_message(message: str, parser: ArgumentParser) -> str:
    """An error message of jsonargparse, which fills a page, as one line, with a suggestion for a misspelt name.

    Args:
        message: it quotes the classes and modules in which a name was looked for.
        parser: the parser that met the error; its options are the keys.
    """
    return one_line(message) + _remedy(message, parser)


def one_line(message: str) -> str:
    """An error message of jsonargparse without `NOISE`."""
    lines = (NOISE.sub("", line.strip().removeprefix("- ")).strip() for line in message.splitlines())
    return " ".join(filter(None, lines))


def _remedy(message: str, parser: ArgumentParser) -> str:
    if missing := re.search(r"No module named '(.+?)'", message):
        return f" (put {missing[1]}.py into the working directory, or install the package)"
    if (unknown := UNKNOWN.search(message)) is None:
        return ""
    owners = re.findall(r"'([\w.]+)'", message)
    names = {*keys(parser), *(name for owner in owners for name in _names(owner))}
    return did_you_mean(unknown[unknown.lastindex or 0], names)


def reason(error: Exception) -> str:
    """The reason for an error of jsonargparse: the UserError that caused it, if there is one."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, UserError):
        cause = cause.__cause__
    return one_line(str(cause or error))


def keys(parser: ArgumentParser) -> Iterator[str]:
    """The keys of a parser and of its subcommands, such as "trainer.max_epochs"."""
    for action in parser._actions:
        if isinstance(action.choices, Mapping):
            for subcommand in action.choices.values():
                yield from keys(subcommand)
        else:
            yield action.dest


def _names(path: str) -> Iterable[str]:
    """The names in a module, or the arguments of a class; none if it has not been imported."""
    module, _, name = path.rpartition(".")
    if path in sys.modules:
        return dir(sys.modules[path])
    owner = getattr(sys.modules.get(module), name, None)
    try:
        return inspect.signature(owner).parameters if inspect.isclass(owner) else ()
    except ValueError:  # a class written in C
        return ()


def own_code_message(error: Exception) -> str | None:
    """The error with the innermost line of the user's own code, such as a mechanism; None if there is no such line."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(LIBRARIES) and "-packages" not in frame.filename:
            return f"{frame.filename}, line {frame.lineno}, in {frame.name}: {kind_and_reason(error)}"
    return None
