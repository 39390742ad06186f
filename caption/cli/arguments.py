"""Argument parsing that several verbs share."""

from __future__ import annotations

import argparse


def verb_parser(verb: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """A parser for a verb's arguments; description and epilog keep their line breaks."""
    return argparse.ArgumentParser(
        f"caption {verb}",
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def count(text: str) -> int:
    """A whole number from 1 up.

    Raises:
        ArgumentTypeError: `text` is something else.
    """
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is not a whole number from 1 up")
