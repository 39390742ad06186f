"""`caption fit --help`: a summary on a screen or two, groups, words, and everything."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from helpers.command_line import Ran

Cli = Callable[..., Ran]


def options(ran: Ran) -> list[str]:
    assert (ran.code, ran.err) == (0, "")
    return re.findall(r"^  (--[a-z_][\w.]*)", ran.out, re.MULTILINE)


@pytest.mark.parametrize("verb", ["fit", "validate", "test", "predict"])
def test_the_summary_is_short_and_lists_the_groups(cli: Cli, verb: str):
    ran = cli(verb, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith(f"usage: caption {verb} -c CONFIG")
    assert len(ran.out.splitlines()) < 75
    for words in ("--ckpt_path", "--data.reader", "\n  trainer ", "\n  model ", "\n  early_stopping "):
        assert words in ran.out
    assert re.search(r"\n  data [^(]*\(\d+\s+options\)", ran.out)


def test_a_group_a_word_and_everything(cli: Cli):
    data = options(cli("fit", "--help", "data"))
    assert "--data.batch_size" in data
    assert all(name.startswith("--data") for name in data)
    summary = cli("fit", "-c", "shapes_soft", "--help", "--trainer.max_epochs")  # an option is no word
    assert summary.out == cli("fit", "--help").out
    assert "--early_stopping.patience" in options(cli("fit", "--help", "patience"))
    rates = options(cli("fit", "--help", "learning rate"))
    assert {"--model.optimizer", "--model.encoder_learning_rate"} <= set(rates)
    assert not any(name.startswith("--data") for name in rates)
    everything = options(cli("fit", "--help", "all"))
    assert {*data, *rates, "--optimizer.help", "--lr_scheduler.help"} <= set(everything)


def test_a_misspelt_group_gets_a_hint(cli: Cli):
    ran = cli("fit", "--help", "tranier")
    assert (ran.code, ran.out) == (2, "")
    assert "no option of caption fit is about 'tranier' (did you mean trainer?)" in ran.err
