"""Training verbs: their help, a summary on a screen or two, and everything."""

from __future__ import annotations

import re

from helpers.command_line import Cli
from helpers.configurations import verb_parsers


def options(text: str) -> set[str]:
    return set(re.findall(r"^  (?:-\w, )?(--[a-z_][\w.]*)", text, re.MULTILINE))


def test_the_summary_is_short_and_what_it_names_exists_and_all_is_everything(cli: Cli):
    ran = cli("fit", "-c", "shapes_soft", "--help", "--trainer.max_epochs")  # an option is not a word
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("usage: caption fit -c CONFIG")
    assert len(ran.out.splitlines()) < 50
    everything = {option for action in verb_parsers()["fit"]._actions for option in action.option_strings}
    assert options(ran.out) <= everything
    groups = {name.strip("-").partition(".")[0] for name in everything if "." in name and " " not in name}
    listed = ran.out.partition("groups: ")[2].partition(". ")[0]
    assert set(re.findall(r"[a-z_]+", re.sub(r"\(.*?\)", "", listed))) == groups
    ran = cli("fit", "--help", "all")
    assert (ran.code, ran.err) == (0, "")
    named = options(ran.out)
    assert {"--data.batch_size", "--early_stopping.patience", "--optimizer.help"} <= named
    assert len(named) > len(everything) / 2
