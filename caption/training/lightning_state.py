"""Private state of Lightning: of its loops, running and in checkpoints, and of its `ModelCheckpoint` in checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer


def validates_next(trainer: Trainer) -> bool:
    """Whether validation comes between this training batch and the next."""
    loop = trainer.fit_loop
    assert loop._data_fetcher is not None
    return loop.epoch_loop._should_check_val_fx(loop._data_fetcher)


def restart_validation(checkpoint: dict[str, Any]) -> None:
    """Change a checkpoint written inside validation as if validation were at its first image.

    Lightning goes on behind the images that are counted here, and their captions would be missing.
    """
    progress = checkpoint["loops"]["fit_loop"]["epoch_loop.val_loop.batch_progress"]
    for count in (progress["total"], progress["current"]):
        count |= {"ready": 1, "started": 1, "processed": 0, "completed": 0}
    progress["is_last_batch"] = False


def complete_epoch(checkpoint: dict[str, Any]) -> None:
    """Change a checkpoint written at the end of an epoch, so that a run with max_steps does not end it once more."""
    loops = checkpoint["loops"]["fit_loop"]
    epoch = loops["epoch_progress"]
    if epoch["current"]["processed"] != epoch["current"]["ready"]:
        return
    for count in (epoch["total"], epoch["current"]):
        count["completed"] = count["processed"]
    batches = loops["epoch_loop.batch_progress"]
    batches["current"] = dict.fromkeys(batches["current"], 0)
    batches["is_last_batch"] = False
    loops["epoch_loop.state_dict"]["_batches_that_stepped"] -= 1  # Lightning adds 1


def follow_folder(state: dict[str, Any], folder: str) -> None:
    """Adapt the state of a `ModelCheckpoint` to the folder to which the run has been moved.

    Lightning would forget the best score, and replace the best checkpoint by the next one.
    """
    before = state["dirpath"]
    if before == folder or not (Path(folder) / Path(state["best_model_path"]).name).is_file():
        return

    def moved(path: str) -> str:
        inside = Path(path).is_relative_to(before)
        return str(Path(folder) / Path(path).relative_to(before)) if inside else path

    for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
        state[name] = moved(state[name])
    state["best_k_models"] = {moved(path): score for path, score in state["best_k_models"].items()}
    state["dirpath"] = folder
