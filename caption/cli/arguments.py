"""Types of command-line options that several verbs have."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """A whole number from 1 up.

    Raises:
        ArgumentTypeError: it is none.
    """
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is no whole number from 1 up")
    return number
