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

from caption.errors import did_you_mean, kind_and_reason

# Lines of jsonargparse's messages without information of their own.
SCAFFOLDING = (
    "Does not validate against any",
    "Subtypes:",
    "Errors:",
    "- Expected a <class 'NoneType'>",
    "- Expected a path but",
    "Given value type:",
    "Given value: {",  # a whole part
    "Given value: Namespace(",
)
LINK = re.compile(r"Call to compute_fn of link .*? with args \(.*?\) failed: ")
"""What jsonargparse puts before an error met in computing one entry from others."""
CULPRIT = re.compile(r"(?:unrecognized arguments: --|import path string: | value: )(\S+)")
"""The misspelt word, where a message does not quote it."""
LIBRARIES = ("<", str(Path(__file__).parents[2]), get_path("stdlib"))
"""How the file names of code begin that is not the user's: generated, of this package, of Python."""


def one_line(message: str) -> str:
    """An error message of jsonargparse, which fills a page, in one line: the keys from the outside in, the reasons."""
    lines = [line.strip() for line in message.splitlines()]
    joined = " ".join(line.removeprefix("- ") for line in lines if not line.startswith(SCAFFOLDING))
    for words in (
        "Problem with given class_path ",
        "Parser key ",
        " Does not validate against any of the Union subtypes",
    ):
        joined = joined.replace(words, "")
    return LINK.sub("", joined)


def hint(message: str, parser: ArgumentParser) -> str:
    """What a misspelt key, argument, class, module or value was meant to be; empty if nothing is like it.

    Args:
        message: of jsonargparse; it quotes the classes and modules in which the misspelt name was looked for.
        parser: the parser that met the error; its options are the keys.
    """
    quoted = re.findall(r"'(.*?)'", message)
    word = (CULPRIT.findall(message) or quoted or [""])[-1]
    if "No module named" in message:
        return f" (put {word}.py into the working directory, or install the package)"
    known = {*keys(parser), *_classes_of_parts(), *(name for owner in quoted for name in _names(owner))}
    return "" if word in known else did_you_mean(word, (known | {*quoted}) - {word})


def keys(parser: ArgumentParser) -> Iterator[str]:
    """The keys of a parser and of its subcommands, such as "trainer.max_epochs"."""
    for action in parser._actions:
        if isinstance(action.choices, Mapping):
            for subcommand in action.choices.values():
                yield from keys(subcommand)
        else:
            yield action.dest


def _classes_of_parts() -> set[str]:
    """The names of the classes that a configuration may name, as far as their modules are imported."""
    from caption.data.readers.base import CaptionReader
    from caption.parts import Part
    from caption.search import Search

    classes: list[type] = [Part, CaptionReader, Search]
    for base in classes:  # which grows
        classes += base.__subclasses__()
    return {cls.__name__ for cls in classes}


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
