"""Tools for developers and researchers. Run them from a clone: `python -m tools.NAME`."""

from __future__ import annotations

import argparse


def make_parser(name: str, description: str) -> argparse.ArgumentParser:
    """The option parser of a tool; --help shows the description as written."""
    raw = argparse.RawDescriptionHelpFormatter
    program = f"python -m tools.{name}"
    return argparse.ArgumentParser(program, description=description, formatter_class=raw, allow_abbrev=False)
