"""Pages of docs/ that a reader follows: their blocks of code, commands that do little, and sessions typed in again."""

from __future__ import annotations

import code
import contextlib
import io
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
FEW = [
    f"--data.reader.init_args.{split}={count}" for split, count in (("train", 40), ("val", 5), ("test", 5))
]
SHORT = [
    *("--trainer.max_epochs=1", "--trainer.enable_progress_bar=false", "--trainer.log_every_n_steps=1"),
    "--attention_figures.images=0",
]
SMALL = {"features": FEW, "fit": [*FEW, *SHORT], "test": [*FEW, *SHORT]}
"""Options with which a verb takes seconds."""


def all_blocks(page: str) -> list[tuple[str, str]]:
    """The language ("python", "yaml", "sh", "pycon", or "" for output) and the text of each block, in order."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def page_blocks(page: str, language: str) -> list[str]:
    """The text of each block of a language, in order."""
    return [block for named, block in all_blocks(page) if named == language]


def commands(block: str) -> list[list[str]]:
    """The arguments of each `caption` command of a block of shell."""
    found = []
    for line in block.replace("\\\n", " ").splitlines():
        for part in re.split(r"&&|\||&$", line):
            if "..." not in part and (match := re.match(r"(?:.* )?caption (\w.*)", part.partition(" #")[0])):
                found.append(shlex.split(match[1]))
    return found


@contextlib.contextmanager
def working_in(folder: Path, *modules: str) -> Iterator[None]:
    """In a folder whose modules can be imported; they are forgotten in the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.chdir(folder)
        yield
    for module in modules:
        sys.modules.pop(module, None)


def run_commands(block: str, chosen: Callable[[list[str]], bool] = lambda words: True) -> None:
    """The `caption` commands of a block, or some of them, with few scenes and a short training."""
    from caption.cli.main import main

    for verb, *arguments in filter(chosen, commands(block)):
        assert main([verb, *arguments, *SMALL.get(verb, [])]) == 0


class Console(code.InteractiveConsole):
    """Shows the last line of a traceback only, as the pages do."""

    def showtraceback(self) -> None:
        error = sys.exc_info()[1]
        print(f"{type(error).__module__}.{type(error).__qualname__}: {error}")


def typed(session: str) -> str:
    """The output of a session, with its input."""
    console, out, more = Console(), io.StringIO(), False
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        for line in re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", session, re.MULTILINE):
            print(f"{'...' if more else '>>>'} {line}".rstrip())
            more = console.push(line)
    return out.getvalue()


def without_numbers(session: str) -> list[str]:
    """The words of a session: numbers may differ in their last digits, and lines in where they are broken."""
    return re.sub(r"\d+", "#", session).split()
