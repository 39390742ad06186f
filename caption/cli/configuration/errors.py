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

SCAFFOLDING = re.compile(
    r"Does not validate|Subtypes:|Errors:|Given value type:|Given value: (\{|Namespace|NestedArg)"
)
"""How lines of jsonargparse's messages begin that have types of Python, or a whole part."""
TYPES = re.compile(
    r"Type typing\.Callable\[.*?\] expects a function or a callable class: | Got value: Namespace\(.*"
)
"""The same inside a line."""
LIBRARIES = ("<", str(Path(__file__).parents[2]), get_path("stdlib"))
"""How the file names of code begin that is not the user's: generated, of this package, of Python."""


def jsonargparse_message(message: str, parser: ArgumentParser) -> str:
    """An error message of jsonargparse, which fills a page, in one line, with what a misspelt name was meant to be.

    Args:
        message: it quotes the classes and modules in which the misspelt name was looked for, and the name itself.
        parser: the parser that met the error; its options are the keys.
    """
    return one_line(message) + _hint(message, parser)


def one_line(message: str) -> str:
    """An error message of jsonargparse without types of Python. Of a part's own errors, what else it might be goes."""
    lines = [line.strip() for line in message.splitlines()]
    if any("class_path" in line or "is not accepted" in line for line in lines):
        lines = [line for line in lines if not line.startswith("- Expected a <class")]
    lines = [TYPES.sub("", line.lstrip("- ")) for line in lines]
    return " ".join(line for line in lines if line and not SCAFFOLDING.match(line))


def _hint(message: str, parser: ArgumentParser) -> str:
    quoted = re.findall(r"'(.*?)'", message)
    if "No module named" in message:
        return f" (put {quoted[-1]}.py into the working directory, or install the package)"
    known = {*keys(parser), *(name for owner in quoted for name in _names(owner))}
    patterns = (r"Option '(\w+)'", r"--([\w.]+)", r"(\w+)\W*$")
    suspects = [*(word for pattern in patterns for word in re.findall(pattern, message)), *quoted[-1:]]
    hints = (did_you_mean(word, {*known, *quoted} - {word}) for word in suspects if word not in known)
    return next(filter(None, hints), "")


def reason(error: Exception) -> str:
    """The reason of an error of jsonargparse: what the user did wrong, where a part has said that."""
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
    value = sys.modules.get(path) or (
        getattr(sys.modules[module], name, None) if module in sys.modules else None
    )
    try:
        return inspect.signature(value).parameters if inspect.isclass(value) else dir(value)
    except ValueError:  # a class of C
        return ()


def own_code_message(error: Exception) -> str | None:
    """The error with the innermost line of the user's own code, such as a mechanism; None if it passed none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(LIBRARIES) and "-packages" not in frame.filename:
            return f"{frame.filename}, line {frame.lineno}, in {frame.name}: {kind_and_reason(error)}"
    return None
