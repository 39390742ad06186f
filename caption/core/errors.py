"""What goes wrong on the user's side, said in a sentence that names the culprit and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

LONGEST_MESSAGE = 3000
"""Characters of an error message; names in files from strangers may have millions."""


class UserError(Exception):
    """A fault in what the user gave. `str(error)` is the message; the command line prints no traceback."""

    def __str__(self) -> str:
        return shortened(super().__str__())


def shortened(message: str) -> str:
    """A message without the second of two full stops, where it quotes a sentence, and whose middle is left out if it
    has more than `LONGEST_MESSAGE` characters; the end has the remedy."""
    message = re.sub(r"(?<=[^\s./\\])\.\.(?=\s|$)", ".", message)
    if len(message) <= LONGEST_MESSAGE:
        return message
    return f"{message[: LONGEST_MESSAGE - 300]} … {message[-297:]}"


@contextmanager
def reported_as(kind: type[UserError], about: str, *errors: type[Exception]) -> Iterator[None]:
    """Within it, these errors become one of a kind, whose message begins with what it is about: "ABOUT: reason"."""
    try:
        yield
    except errors as error:
        raise kind(f"{about}: {error}") from error


@contextmanager
def optional_package(what: str, install: str) -> Iterator[None]:
    """Within it, an optional package that is missing is a `UserError`.

    Args:
        what: needs the package, for the message.
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
    """A caption file, split list or data folder is not what it should be."""


class CheckpointError(UserError):
    """A file is no checkpoint of this package, or one that cannot be trusted or rebuilt."""


def kind_and_reason(error: Exception) -> str:
    """What an error of another package is and says, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


class Stopped(BaseException):
    """A signal has stopped the command. Not an `Exception`: whoever handles errors must let it pass.

    Args:
        number: of the signal; the exit code is 128 + its number, as in shells.
        message: where it stopped, and what was saved.
    """

    def __init__(self, number: int, message: str = "") -> None:
        super().__init__(message)
        self.number = number
        self.hint = ""
        """How to go on."""


STOPS = (KeyboardInterrupt, Stopped)
"""Raised by Ctrl-C, and by other stop signals."""


NAMED = 3
"""How many culprits a message names."""
LONGEST_NAME = 500
"""Characters of a culprit that a message shows."""


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """The hint " (did you mean X?)" with the choice most like a misspelt word; empty if none is like it."""
    similar = get_close_matches(word, list(choices), n=1, cutoff=0.7)
    return f" (did you mean {similar[0]}?)" if similar else ""


def first_few(culprits: Iterable[object]) -> str:
    """The first few culprits as text, and how many more there are: "a, b, c and 12 more"."""
    names = [str(culprit) for culprit in culprits]
    shown = ", ".join(
        name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}…" for name in names[:NAMED]
    )
    return shown if len(names) <= NAMED else f"{shown} and {len(names) - NAMED} more"


HIDDEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufffe\uffff]")
"""Characters that no text should show: they steer terminals, begin other lines, turn the direction of writing, or are
not allowed in XML."""


def printable(text: object) -> str:
    """A text or path on one line of a terminal or figure: `HIDDEN` characters, such as line ends, as in Python.

    Halves of characters stay, which stand for bytes in names of files that are not Unicode.
    """
    return HIDDEN.sub(lambda match: repr(match[0])[1:-1], str(text))
