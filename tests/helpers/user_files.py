"""The parser of every command; a folder of a user's files in which commands run, and what they did to it."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
from helpers.configurations import verb_parsers


def parsers() -> dict[str, argparse.ArgumentParser]:
    """The parser of every command, by its words: "import arctic", "fit"."""
    from caption.cli.configuration.arguments import verb_parser
    from caption.cli.main import VERBS

    found = dict(verb_parsers())
    for verb, (module, _) in VERBS.items():
        if verb not in found:
            found |= _nouns(verb, verb_parser(verb, importlib.import_module(f"caption.cli.{module}")))
    return found


def _nouns(command: str, parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    nouns = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nouns:
        return [(command, parser)]
    return [each for name, inner in nouns[0].choices.items() for each in _nouns(f"{command} {name}", inner)]


QUIET = "--trainer.enable_progress_bar=false --trainer.enable_model_summary=false"
FIT = f"fit -c fit.yaml {QUIET}"
EVALUATE = f"-c fit.yaml --ckpt_path run/best.ckpt {QUIET}"
ROOT_DIR = "--trainer.default_root_dir"
FEATURES = "features -c fit.yaml --model run/best.ckpt"


# -- a folder of a user's files ------------------------------------------------------------------------------------


class Entry(NamedTuple):
    """What is at a path; of folders, only that they are there."""

    kind: int
    mode: int
    time: int
    content: bytes | str | None


def snapshot(top: Path) -> dict[str, Entry]:
    """Everything below a folder, by its path there. Links are not followed."""
    found = {}
    for folder, folders, names in os.walk(top):
        for path in (Path(folder, name) for name in (*folders, *names)):
            status = path.lstat()
            kind, content, time = stat.S_IFMT(status.st_mode), None, 0
            if kind in (stat.S_IFLNK, stat.S_IFREG):
                content = os.readlink(path) if kind == stat.S_IFLNK else path.read_bytes()
                time = status.st_mtime_ns
            found[str(path.relative_to(top))] = Entry(kind, stat.S_IMODE(status.st_mode), time, content)
    return found


def own_files(top: Path) -> set[str]:
    """The files below a folder that this package wrote and may replace."""
    from caption.core.runtime.atomic_files import LOCK, MANIFEST, OwnFolder, is_own

    found: set[Path] = set()
    for folder, _, names in os.walk(top):
        if MANIFEST in names:
            found |= {Path(folder, name) for name in OwnFolder(Path(folder), "").names}
        found |= {path for name in names if is_own(path := Path(folder, name)) or name == LOCK}
    return {str(path.relative_to(top)) for path in found if path.is_file() and not path.is_symlink()}


# -- running -------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """What a command did."""

    code: int
    out: str
    err: str
    loaded: bool
    """Whether it read a model."""


def run(args: Sequence[str]) -> Run:
    """Run a command in this process."""
    from caption.cli.main import main

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", "surrogateescape"), io.StringIO()
    precision = torch.get_float32_matmul_precision()
    try:
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(torch, "load", wraps=torch.load) as load,
        ):
            code = main(list(args))
    finally:
        torch.set_float32_matmul_precision(precision)
    out.seek(0)
    return Run(code, out.read(), err.getvalue(), load.called)


def harm(
    top: Path,
    before: Mapping[str, Entry],
    own: set[str],
    ran: Run,
    allowed: Sequence[Path],
    inputs: Sequence[str],
) -> list[str]:
    """What a command has done that it must not do."""
    after = snapshot(top)
    found = []
    for name, entry in before.items():
        now = after.get(name)
        if name in own and name not in inputs:
            if now is not None and now.mode != entry.mode:
                found.append(f"MODE of {name}: {entry.mode:o} -> {now.mode:o}")
        elif now is None:
            found.append(f"DELETED {name}")
        elif now != entry:
            found.append(f"CHANGED {name}: {entry!r:.80} -> {now!r:.80}")
    for name in after.keys() - before.keys():
        path = top / name
        if not any(path == place or place in path.parents for place in allowed):
            found.append(f"LITTER {name}")
    if ran.code not in (0, 1, 2) or re.search("Traceback|internal error", ran.out + ran.err):
        found.append(f"EXIT CODE {ran.code}: {ran.err.strip()[-400:]}")
    return found
