"""State that a checkpoint gives to Lightning: checkpoints of the run's folder, and values of the right kinds."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

from caption.training.lightning_state import _confine, check_like

ONE = torch.tensor(1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run's folder with its checkpoints and files of the user, and a folder beside it."""
    for name in ("run/best.ckpt", "run/epoch=7.ckpt", "run/last.ckpt", "run/mine.ckpt", "other/best.ckpt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "run" / "epoch=8.ckpt").symlink_to(tmp_path / "other" / "best.ckpt")
    (tmp_path / "run" / "epoch=9.ckpt").mkdir()
    return tmp_path / "run"


def confined(folder: Path, path: str, filename: str, before: Path | None = None) -> dict[str, Any]:
    names = ("best_model_path", "kth_best_model_path", "last_model_path")
    state = {"dirpath": str(before or folder), "best_model_score": ONE, "best_k_models": {path: ONE}}
    state |= dict.fromkeys(names, path)
    callback = ModelCheckpoint(str(folder), filename)
    _confine(state, callback)
    assert {state[name] for name in names} == {next(iter(state["best_k_models"]), "")}
    return state


@pytest.mark.parametrize(
    ("path", "filename", "kept"),
    [
        ("{run}/best.ckpt", "best", True),
        ("{run}/last.ckpt", "best", True),
        ("{run}/epoch=7.ckpt", "{epoch}", True),
        ("{run}/epoch=7.ckpt", "best", False),
        ("{run}/mine.ckpt", "{epoch}", False),
        ("{run}/epoch=8.ckpt", "{epoch}", False),
        ("{run}/epoch=9.ckpt", "{epoch}", False),
        ("{run}", "best", False),
        ("{run}/../other/best.ckpt", "best", False),
        ("{run}/../run/best.ckpt", "best", False),
        ("s3://bucket/best.ckpt", "best", False),
        ("", "best", False),
    ],
)
def test_a_checkpoint_has_a_name_of_the_callback(folder: Path, path: str, filename: str, kept: bool):
    path = path.format(run=folder)
    assert [*confined(folder, path, filename)["best_k_models"]] == ([path] if kept else [])


def test_the_folder_may_have_been_moved(folder: Path):
    state = confined(folder, "/elsewhere/run/best.ckpt", "best", Path("/elsewhere/run"))
    assert (state["dirpath"], [*state["best_k_models"]]) == (str(folder), [f"{folder}/best.ckpt"])


def test_entries_of_no_meaning_are_dropped_and_anything_may_stand_where_nothing_is_known_yet():
    check_like(SimpleNamespace(), None, "state")
    state = {"count": 3, "score": ONE, "step": "x", "more": {"a": 1, "b": 2}}
    check_like(state, {"count": 0, "score": ONE, "more": {"a": 0}}, "state")
    assert state == {"count": 3, "score": ONE, "more": {"a": 1}}


COUNTS = [("3", 0), (-1, 0), (True, 0), (2**64, 0), (1.5, 0), (0, {}), (3, [1])]
OTHERS = [("x", 1.0), (1, ""), (1, False), (torch.ones(2), ONE), (torch.tensor(1), ONE), (1.0, ONE)]


@pytest.mark.parametrize(("value", "own"), COUNTS + OTHERS)
def test_values_of_another_kind_are_named(value: Any, own: Any):
    with pytest.raises(ValueError, match=r"state\.loops\.n is "):
        check_like({"loops": {"n": value}}, {"loops": {"n": own}}, "state")
