"""Errors in the user's input, with messages that name the culprit and the remedy."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from sysconfig import get_path

LONGEST_MESSAGE = 3000
"""Maximal characters of an error message; names in untrusted files may have millions."""


class UserError(Exception):
    """An error in the user's input. `str(error)` is the message; the command line does not print a traceback."""

    def __str__(self) -> str:
        return shortened(super().__str__())


def shortened(message: str) -> str:
    """A message with doubled full stops, after a quoted sentence, made single. If it has more than `LONGEST_MESSAGE`
    characters, the middle is left out, because the end has the remedy."""
    message = re.sub(r"(?<=[^\s./\\])\.\.(?=\s|$)", ".", message)
    if len(message) <= LONGEST_MESSAGE:
        return message
    return f"{message[: LONGEST_MESSAGE - 300]} … {message[-297:]}"


@contextmanager
def reported_as(kind: type[UserError], about: str, *errors: type[Exception]) -> Iterator[None]:
    """Context that re-raises these errors as a `UserError` of a kind, with the message "ABOUT: reason"."""
    try:
        yield
    except errors as error:
        raise kind(f"{about}: {error}") from error


@contextmanager
def optional_package(what: str, install: str) -> Iterator[None]:
    """Context that raises a `UserError` if an optional package is missing.

    Args:
        what: the thing that needs the package, for the message.
        install: the arguments of pip.
    """
    try:
        yield
    except ImportError as error:
        raise UserError(
            f"{what} needs the package {error.name}, which is missing: run pip install {install}"
        ) from error


class ImageError(UserError):
    """One image cannot be used: missing, empty, truncated, not an image, a folder."""


class DataError(UserError):
    """A caption file, split list or data folder is missing or invalid."""


class CheckpointError(UserError):
    """A file is not a checkpoint of this package, or cannot be trusted or loaded."""


def kind_and_reason(error: BaseException) -> str:
    """Type and message of another package's error, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


LIBRARIES = ("<", str(Path(__file__).parents[1]), get_path("stdlib"))
"""Beginnings of the file names of code that is not the user's: generated code, this package, Python."""


def own_code_message(error: Exception) -> str | None:
    """The error with the innermost line of the user's own code, such as a mechanism; None if there is no such line."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(LIBRARIES) and "-packages" not in frame.filename:
            return f"{frame.filename}, line {frame.lineno}, in {frame.name}: {kind_and_reason(error)}"
    return None


class Stopped(BaseException):
    """A signal has stopped the command. A `BaseException`, so that `except Exception` does not catch it.

    Args:
        number: of the signal; the exit code is 128 + this number, as in shells.
        message: the point at which the command stopped, and the files that were saved.
    """

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message)
        self.number = number
        self.hint = ""
        """How to continue."""


STOPS = (KeyboardInterrupt, Stopped)
"""Raised by Ctrl-C and by other stop signals."""


NAMED = 3
"""Number of culprits that a message names."""
LONGEST_NAME = 500
"""Maximal characters of a culprit in a message."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """The hint " (did you mean X?)" with the choice most similar to a misspelt word, or the first that begins with it;
    empty without such a choice."""
    names = list(choices)
    similar = get_close_matches(word, names, n=1, cutoff=0.7)
    similar = similar or [name for name in names if len(word) > 3 and name.startswith(word)]
    return f" (did you mean {similar[0]}?)" if similar else ""


def first_few(culprits: Iterable[object]) -> str:
    """The first few culprits as text, and the number of the others: "a, b, c and 12 more"."""
    names = [str(culprit) for culprit in culprits]
    shown = ", ".join(
        name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…" for name in names[:NAMED]
    )
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


def number_of(number: int, one: str, many: str | None = None) -> str:
    """A number with its noun: "1 photo", "12 photos"; `many` is the plural, by default with an s."""
    return f"{number:,} {one if number == 1 else many or f'{one}s'}"


HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")
"""Characters that are never shown: they control terminals, start new lines, change the direction of writing, or are not
allowed in XML."""


def printable(text: object) -> str:
    """A text or path for one line of a terminal or figure: `HIDDEN` characters, such as line ends, are escaped as in
    Python.

    Surrogates are kept; they represent bytes in names of files that are not Unicode.
    """
    return HIDDEN.sub(lambda match: repr(match[0])[1:-1], str(text))
