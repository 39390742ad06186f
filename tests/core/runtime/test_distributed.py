"""The trainer's settings under torchrun; sums over processes are in objectives/test_shares_of_a_batch.py."""

from __future__ import annotations

import pytest
from torch import distributed

from caption.core.errors import UserError
from caption.core.runtime.distributed import torchrun_settings


@pytest.mark.skipif(not distributed.is_available(), reason="torch was built without distributed")
def test_processes_and_nodes_are_those_of_torchrun(monkeypatch: pytest.MonkeyPatch):
    """In the environment of one of eight processes on two machines."""
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert torchrun_settings({"devices": 3}) == {}
    for name, value in (("TORCHELASTIC_RUN_ID", "none"), ("WORLD_SIZE", "8"), ("LOCAL_WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    for given in ("auto", -1, 4, "4", None):
        found = torchrun_settings({"devices": given, "num_nodes": 1, "strategy": "auto"})
        assert found == {"devices": 4, "num_nodes": 2, "strategy": "ddp"}
    chosen = torchrun_settings({"devices": [0, 2, 4, 6], "strategy": "ddp_find_unused_parameters_true"})
    assert chosen == {"devices": [0, 2, 4, 6], "num_nodes": 2}
    for given in (1, 2, [0]):
        with pytest.raises(UserError, match="torchrun has started 4 processes"):
            torchrun_settings({"devices": given})
