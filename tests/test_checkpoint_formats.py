"""Checkpoints of earlier formats still load, evaluate and resume."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from caption import checkpoint
from caption.checkpoint_formats import FORMAT, upgrade
from caption.objectives import Objective, Reinforce
from caption.parts import make


def first_format() -> dict[str, Any]:
    """What the first format had of hard attention's objective."""
    return {
        "captioner": {"format": 1},
        "state_dict": {"objective.baseline": torch.tensor(-2.5), "captioner.x": torch.ones(1)},
        "hyper_parameters": {
            "objective": {
                "class_path": "caption.objectives.Reinforce",
                "init_args": {
                    "reward_weight": 0.1,
                    "entropy_weight": 0.002,
                    "baseline_decay": 0.8,
                    "reward": "mean",
                    "credit": "future",
                    "doubly_stochastic": 0.0,
                },
            }
        },
    }


def test_the_first_formats_objective_is_made_again():
    contents = first_format()
    upgrade(contents)
    assert contents["captioner"]["format"] == FORMAT
    objective = make(contents["hyper_parameters"]["objective"], Objective)
    assert isinstance(objective, Reinforce)
    assert (objective.baseline.decay, objective.credit) == (0.8, "future")
    state = {n.removeprefix("objective."): t for n, t in contents["state_dict"].items() if "objective" in n}
    objective.load_state_dict(state)
    assert objective.baseline.value.item() == -2.5


def test_soft_attention_and_bare_models_need_no_change():
    contents = {"captioner": {"format": 1}, "state_dict": {"captioner.x": torch.ones(1)}}
    upgrade(contents)
    assert contents == {"captioner": {"format": FORMAT}, "state_dict": {"captioner.x": torch.ones(1)}}


def test_upgrading_twice_changes_nothing_more():
    contents = first_format()
    upgrade(contents)
    once = repr(contents)
    upgrade(contents)
    assert repr(contents) == once


@pytest.mark.parametrize("name", ["shapes", "shapes-hard"])
def test_the_models_that_came_with_the_first_release_load(name: str):
    path = Path(checkpoint.__file__).parent / "models" / f"{name}.ckpt"
    assert torch.load(path, weights_only=True)["captioner"]["format"] == 1
    assert checkpoint.read(path)["captioner"]["format"] == FORMAT
    assert checkpoint.load(path).decoder.hidden_size == 128
