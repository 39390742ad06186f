"""Every rung between the textbook's training step and ours has the same loss and gradients."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest
import torch

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def gains(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    common, module = importlib.import_module("speed_common"), importlib.import_module("speed_gains")
    monkeypatch.setattr(common, "VOCABULARY", 60)
    monkeypatch.setattr(common, "REGIONS", 6)
    monkeypatch.setattr(module, "make_regions", lambda *given: common.make_regions(*given, regions=6))
    monkeypatch.setattr(module, "IMAGES", 4)
    return module


def test_each_has_one_habit_less_and_the_same_loss_and_gradients(gains: ModuleType) -> None:
    rungs = gains.make_rungs(16, torch.device("cpu"))
    textbook, _ = rungs["textbook"]
    expected = gains.step(*rungs["textbook"])
    assert [type(model) for model, _ in rungs.values()][:-1] == list(gains.RUNGS.values())
    for name, rung in rungs.items():
        assert float(gains.step(*rung)) == pytest.approx(float(expected), rel=1e-6), name
        if name != gains.LAST:  # whose weights have other names, and are compared in test_textbook
            for ours, theirs in zip(rung[0].parameters(), textbook.parameters(), strict=True):
                torch.testing.assert_close(ours.grad, theirs.grad)
