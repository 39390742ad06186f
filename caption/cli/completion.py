"""`caption completion`: a script with which a shell completes verbs, options and file names."""

from __future__ import annotations

import argparse
from importlib import import_module

from caption.cli.configuration.arguments import verb_parser
from caption.cli.exit_codes import DONE

DESCRIPTION = """\
Print a script with which a shell completes verbs, options, their choices and file names at the TAB key. Install it
once, and again after an update of this package:

  bash  caption completion bash > ~/.local/share/bash-completion/completions/caption
  zsh   caption completion zsh > DIR/_caption        (DIR is a folder of $fpath)
"""
SHELLS = ("bash", "zsh", "tcsh")


def main(args: list[str]) -> int:
    options = make_parser().parse_args(args)
    import shtab

    print(shtab.complete(command(), options.shell))
    return DONE


def make_parser() -> argparse.ArgumentParser:
    parser = verb_parser("completion", DESCRIPTION)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    return parser


def command() -> argparse.ArgumentParser:
    """The whole command as one parser, with a subcommand for every verb."""
    import shtab

    from caption.cli.main import VERBS
    from caption.cli.train import verb_parsers

    whole = argparse.ArgumentParser("caption", description="Image captioning with visual attention")
    whole.add_argument("--version", action="store_true", help="print the version")
    lightning = verb_parsers()
    verbs = whole.add_subparsers()
    for verb, (module, summary) in VERBS.items():
        options = (
            _options(verb, lightning[verb])
            if verb in lightning
            else import_module(f"caption.cli.{module}").make_parser()
        )
        added = verbs.add_parser(verb, parents=[options], add_help=False, help=summary, description=summary)
        for action in added._actions:
            if action.nargs != 0 and not action.choices:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    return whole


def _options(verb: str, lightning: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """A plain parser with the options of one of Lightning's verbs. Those of nested classes are left out: which there
    are depends on the configuration."""
    from caption.cli.configuration.errors import keys

    parser = argparse.ArgumentParser(f"caption {verb}")
    parser.add_argument("-c", "--config", help="YAML file, or the name of a configuration")
    for key in sorted(set(keys(lightning)) - {"help", "config"}):
        parser.add_argument(f"--{key}")
    return parser
