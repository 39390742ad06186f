"""The temperature that falls early in training: what it divides, when, and that nothing of it is left."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.training import Watch, fit

from caption.attention import MultiHeadAttention
from caption.attention.base import Query
from caption.core.errors import UserError
from caption.core.regions import Regions
from caption.data.shapes import Shapes
from caption.decoders import ShowAttendAndTellDecoder
from caption.training.attention_temperature import AttentionTemperature


def temperature(module: Any, *args: Any) -> float:
    """How many times as large scores are in evaluation as in training."""
    attention = module.captioner.decoder.attention
    regions = Regions(torch.linspace(-1, 1, 32).reshape(1, 4, 8), (2, 2))
    query, memory = Query(torch.ones(1, 1, 12)), attention.memory((regions,))
    with torch.no_grad():
        training, evaluation = (attention.score.train(mode)(query, memory) for mode in (True, False))
    attention.score.train()
    return float((evaluation / training).mean())


def test_it_falls_geometrically_and_stays_at_1(tmp_path: Path, reader: Shapes) -> None:
    """It is resumed in test_resuming.py."""
    seen = Watch(temperature)
    hooked = Watch(lambda module, *_: float(bool(module.captioner.decoder.attention.score._forward_hooks)))
    module = fit(tmp_path, reader, AttentionTemperature(16.0, 0.5), seen, hooked, max_epochs=2)
    steps = len(seen.seen)
    expected = [16.0 ** max(0.0, 1 - step / (steps / 2)) for step in range(steps)]
    assert expected[0] == 16
    assert expected[-1] == 1
    assert seen.seen == pytest.approx(expected, rel=1e-4)
    assert temperature(module) == 1
    assert hooked.seen == [one > 1 for one in expected]


@pytest.mark.parametrize(
    "arguments", [{"start": 0.5}, {"start": float("inf")}, {"share": 0.0}, {"share": 1.5}]
)
def test_arguments_outside_their_range_are_named(arguments: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"attention_temperature.{next(iter(arguments))}"):
        AttentionTemperature(**arguments)


def test_a_training_without_scores_or_end_is_refused(tmp_path: Path, reader: Shapes) -> None:
    decoder = ShowAttendAndTellDecoder(MultiHeadAttention(2, 8), 8, 12)
    AttentionTemperature().on_train_start(None, None)  # type: ignore[arg-type] # reads neither
    with pytest.raises(UserError, match="no score"):
        fit(tmp_path, reader, AttentionTemperature(2.0), decoder=decoder)
    with pytest.raises(UserError, match="no planned end"):
        fit(tmp_path, reader, AttentionTemperature(2.0), max_epochs=-1)
