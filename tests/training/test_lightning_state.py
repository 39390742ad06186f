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
        ("{run}/mine.ckpt", "best", False),
        ("{run}/mine.ckpt", "{epoch}", False),
        ("{run}/epoch=8.ckpt", "{epoch}", False),
        ("{run}/epoch=9.ckpt", "{epoch}", False),
        ("{run}", "best", False),
        ("{run}/../other", "best", False),
        ("{run}/../other/best.ckpt", "best", False),
        ("{run}/../run/best.ckpt", "best", False),
        ("best.ckpt", "best", False),
        ("/etc/passwd", "best", False),
        ("s3://bucket/best.ckpt", "best", False),
        ("{run}/none.ckpt", "best", False),
        ("", "best", False),
    ],
)
def test_a_checkpoint_is_a_file_of_the_folder_with_a_name_of_the_callback(
    folder: Path, path: str, filename: str, kept: bool
):
    path = path.format(run=folder)
    assert [*confined(folder, path, filename)["best_k_models"]] == ([path] if kept else [])


def test_the_folder_may_have_been_moved(folder: Path):
    state = confined(folder, "/elsewhere/run/best.ckpt", "best", Path("/elsewhere/run"))
    assert (state["dirpath"], [*state["best_k_models"]]) == (str(folder), [f"{folder}/best.ckpt"])


def test_entries_of_no_meaning_are_dropped():
    state = {"count": 3, "score": ONE, "step": "x", "more": {"a": 1, "b": 2}}
    check_like(state, {"count": 0, "score": ONE, "more": {"a": 0}}, "state")
    assert state == {"count": 3, "score": ONE, "more": {"a": 1}}


@pytest.mark.parametrize(
    ("value", "own"),
    [
        ("3", 0),
        (-1, 0),
        (True, 0),
        (2**64, 0),
        (1.5, 0),
        ("x", 1.0),
        (1, ""),
        (1, False),
        ({}, 0),
        (0, {}),
        (3, [1]),
    ],
)
def test_values_of_another_kind_are_named(value: Any, own: Any):
    with pytest.raises(ValueError, match=r"state\.loops\.n is "):
        check_like({"loops": {"n": value}}, {"loops": {"n": own}}, "state")


@pytest.mark.parametrize("value", [torch.ones(2), torch.tensor(1), 1.0])
def test_a_tensor_of_another_kind_is_named(value: Any):
    with pytest.raises(ValueError, match=r"state\[0\] is "):
        check_like([value], [ONE], "state")
    check_like(SimpleNamespace(), None, "anything may stand where nothing is known yet")
