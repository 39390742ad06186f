"""Training verbs: their help, a summary on a screen or two, and everything; their processes under torchrun."""

from __future__ import annotations

import re

import pytest
from helpers.command_line import Cli
from helpers.configurations import verb_parsers
from torch import distributed

from caption.cli.configuration.torchrun import trainer_settings
from caption.core.errors import UserError


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


@pytest.mark.skipif(not distributed.is_available(), reason="torch was built without distributed")
def test_processes_and_nodes_are_those_of_torchrun(monkeypatch: pytest.MonkeyPatch):
    """In the environment of one of eight processes on two machines."""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert trainer_settings({"devices": 3}) == {}
    for name, value in (("TORCHELASTIC_RUN_ID", "none"), ("WORLD_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    for given in ("auto", -1, 4, "4", None):
        found = trainer_settings({"devices": given, "num_nodes": 1, "strategy": "auto"})
        assert found == {"devices": 4, "num_nodes": 2, "strategy": "ddp"}
    chosen = trainer_settings({"devices": [0, 2, 4, 6], "strategy": "ddp_find_unused_parameters_true"})
    assert chosen == {"devices": [0, 2, 4, 6], "num_nodes": 2}
    for given in (1, 2, [0]):
        with pytest.raises(UserError, match="torchrun has started 4 processes"):
            trainer_settings({"devices": given})
