"""Trainer settings under torchrun."""

from __future__ import annotations

import pytest
from torch import distributed

from caption.cli.configuration.torchrun import trainer_settings
from caption.errors import UserError

pytestmark = pytest.mark.skipif(not distributed.is_available(), reason="torch was built without distributed")


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of one of eight processes on two machines."""
    for name, value in (("TORCHELASTIC_RUN_ID", "none"), ("WORLD_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)


def test_without_torchrun_nothing_is_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert trainer_settings({"devices": 3}) == {}


@pytest.mark.parametrize("given", ["auto", -1, 4, "4", None])
def test_processes_and_nodes_are_those_of_torchrun(two_nodes: None, given: object):
    found = trainer_settings({"devices": given, "num_nodes": 1, "strategy": "auto"})
    assert found == {"devices": 4, "num_nodes": 2, "strategy": "ddp"}


def test_a_choice_of_gpus_and_a_strategy_stay(two_nodes: None):
    found = trainer_settings({"devices": [0, 2, 4, 6], "strategy": "ddp_find_unused_parameters_true"})
    assert found == {"devices": [0, 2, 4, 6], "num_nodes": 2}


@pytest.mark.parametrize("given", [1, 2, [0]])
def test_another_number_of_devices_is_refused(two_nodes: None, given: object):
    with pytest.raises(UserError, match="torchrun has started 4 processes"):
        trainer_settings({"devices": given})
