"""`caption fit --help`: a summary on a screen or two, and everything."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from helpers.command_line import Ran
from helpers.configurations import verb_parsers

Cli = Callable[..., Ran]


def options(text: str) -> set[str]:
    return set(re.findall(r"^  (?:-\w, )?(--[a-z_][\w.]*)", text, re.MULTILINE))


@pytest.fixture(scope="module")
def everything() -> set[str]:
    return {option for action in verb_parsers()["fit"]._actions for option in action.option_strings}


@pytest.mark.parametrize("verb", ["fit", "validate"])
def test_the_summary_is_short(cli: Cli, verb: str):
    ran = cli(verb, "-c", "shapes_soft", "--help", "--trainer.max_epochs")  # an option is not a word
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"usage: caption {verb} -c CONFIG")
    assert len(ran.out.splitlines()) < 50


def test_what_the_summary_names_exists(cli: Cli, everything: set[str]):
    summary = cli("fit", "--help").out
    assert options(summary) <= everything
    groups = {name.strip("-").partition(".")[0] for name in everything if "." in name and " " not in name}
    listed = summary.partition("groups: ")[2].partition(". ")[0]
    assert set(re.findall(r"[a-z_]+", re.sub(r"\(.*?\)", "", listed))) == groups


def test_all_lists_every_option(cli: Cli, everything: set[str]):
    ran = cli("fit", "--help", "all")
    assert (ran.code, ran.err) == (0, "")
    listed = options(ran.out)
    assert {"--data.batch_size", "--early_stopping.patience", "--optimizer.help"} <= listed
    assert len(listed) > len(everything) / 2
