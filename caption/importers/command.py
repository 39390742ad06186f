"""What the import tools have in common: their options, and a sentence instead of a traceback."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from caption import checkpoint
from caption.captioner import Captioner
from caption.cli.files import output_file
from caption.errors import UserError

WRONG_USAGE = 2
INTERRUPTED = 130


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options of all importers."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = made.add_argument
    add("--out", required=True, metavar="MODEL", help="the checkpoint to write")
    add(
        "--encoder",
        metavar="FILE",
        help="YAML with 'encoder' and 'transform'; default: the published model's",
    )
    add(
        "--encoder-weights",
        metavar="FILE",
        help="state dict of the encoder; default: torchvision's, downloaded",
    )
    return made


def run(
    command: argparse.ArgumentParser,
    make: Callable[[argparse.Namespace], Captioner],
    args: Sequence[str] | None,
) -> int:
    """Make a captioner and write it.

    Returns:
        0: done; 2: something is wrong with what was given, said on stderr; 130: stopped by Ctrl-C.
    """
    options = command.parse_args(args)
    try:
        out = output_file(options.out, "--out")
        captioner = make(options)
        try:
            checkpoint.save(captioner, out)
        except (OSError, RuntimeError) as error:
            raise UserError(f"--out {out} cannot be written: {error}") from error
    except UserError as error:
        print(f"{command.prog}: {error}", file=sys.stderr)
        return WRONG_USAGE
    except KeyboardInterrupt:
        print(f"{command.prog}: stopped", file=sys.stderr)
        return INTERRUPTED
    print(
        f"{out}: {len(captioner.vocabulary)} words; try caption describe PHOTO --model {out}", file=sys.stderr
    )
    return 0
