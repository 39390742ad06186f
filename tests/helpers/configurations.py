"""Configurations parsed as `caption fit` parses them, each once."""

from __future__ import annotations

import copy
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

CONFIGS = Path(__file__).parents[2] / "configs"


@cache
def verb_parsers() -> dict[str, Any]:
    """The parsers of Lightning's verbs, without running one."""
    from caption.cli.training.lightning_cli import CaptionCLI, Parser
    from caption.data.module import CaptionData
    from caption.training.module import CaptionTraining

    parsers: dict[str, Any] = {}

    class ParsersOnly(CaptionCLI):
        def parse_arguments(self, parser: Any, args: Any) -> None:
            parsers.update(self._subcommand_parsers)
            raise SystemExit

    with suppress(SystemExit), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Lightning, about the arguments of pytest
        ParsersOnly(CaptionTraining, CaptionData, args=["fit"], parser_class=Parser)
    return parsers


@cache
def _parsed(arguments: tuple[str, ...]) -> dict[str, Any]:
    return verb_parsers()["fit"].parse_args([*arguments]).as_dict()


def parse(*files: Path, options: tuple[str, ...] = ()) -> dict[str, Any]:
    """The values of configurations laid over each other, and of options."""
    return copy.deepcopy(_parsed((*(f"--config={file}" for file in files), *options)))
