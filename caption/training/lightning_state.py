"""Private state of Lightning: of its loops, running and in checkpoints, and of callbacks in checkpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

LARGEST = 2**64
"""Above any count or seed."""


def validates_next(trainer: Trainer) -> bool:
    """Whether validation comes between this training batch and the next."""
    loop = trainer.fit_loop
    assert loop._data_fetcher is not None
    return loop.epoch_loop._should_check_val_fx(loop._data_fetcher)


def ends_inside_epoch(trainer: Trainer) -> bool:
    """Whether training ends here, after a batch that is not the last one of its epoch."""
    loop = trainer.fit_loop
    ends = trainer.global_step == trainer.max_steps or (trainer.should_stop and loop._can_stop_early)
    return ends and not trainer.is_last_batch


def restart_validation(checkpoint: dict[str, Any]) -> None:
    """Change a checkpoint that was written inside a validation, so that the validation begins again.

    Lightning would continue after the images counted here, and their captions would be missing.
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


def check_state(contents: dict[str, Any], trainer: Trainer, schedules: Sequence[LRScheduler]) -> None:
    """Check that a checkpoint holds the state of this training: of its callbacks, loops, schedules and data.

    Lightning and torch set whatever attributes the file names, and meet a wrong value in the middle of the training, or
    delete the files that it names. So values have the kinds of those that this training would write, other entries are
    dropped, and checkpoints are those of the run's folder (`_confine`).

    Args:
        contents: of the checkpoint.
        trainer: of the training that is to be resumed.
        schedules: learning rate schedules like those of the training.

    Raises:
        ValueError: a value is of another kind; the message says which.
    """
    callbacks = {callback.state_key: callback for callback in trainer.callbacks}  # type: ignore[attr-defined]
    loop = trainer.fit_loop.state_dict()
    # There is none before the first epoch.
    loop["state_dict"] = {"combined_loader": [{"epoch": 0, "given": 0, "processes": 1, "workers": 1}]}
    data = trainer.datamodule  # type: ignore[attr-defined]
    usual = {
        "seed": 0,
        "loops": {"fit_loop": loop},
        # A callback of the user's may keep values of any kind.
        "callbacks": {key: part.state_dict() if _is_ours(part) else None for key, part in callbacks.items()},
        type(data).__qualname__: data.state_dict(),
    }
    for name, like in usual.items():
        if name in contents or name in ("loops", "callbacks"):
            check_like(contents[name], like, name)
    for key, state in contents["callbacks"].items():
        if isinstance(callback := callbacks[key], ModelCheckpoint):
            _confine(state, callback)
    states = contents["lr_schedulers"] if schedules else ()
    for number, (schedule, state) in enumerate(zip(schedules, states, strict=False)):
        for name, like in schedule.state_dict().items():
            if name in state and not isinstance(like, dict):
                check_like(state[name], like, f"lr_schedulers[{number}].{name}")
        if methods := [name for name in state if callable(getattr(type(schedule), name, None))]:
            raise ValueError(f"lr_schedulers[{number}] has the entry {methods[0]!r}")


def check_like(state: Any, like: Any, where: str) -> None:
    """Check that values are of the same kinds as in `like`, and drop entries that `like` lacks.

    Raises:
        ValueError: a value is of another kind, or a whole number is negative.
    """
    if isinstance(like, dict) and isinstance(state, dict):
        for name in [*state] if like else ():
            if name in like:
                check_like(state[name], like[name], f"{where}.{name}")
            else:
                del state[name]
        return
    if isinstance(like, (list, tuple)) and isinstance(state, (list, tuple)):
        if not like or len(like) == len(state):
            for number, (entry, like_entry) in enumerate(zip(state, like, strict=False)):
                check_like(entry, like_entry, f"{where}[{number}]")
            return
    elif like is None:  # not known yet
        return
    elif isinstance(like, Tensor):
        if isinstance(state, Tensor) and (state.shape, state.dtype) == (like.shape, like.dtype):
            return
    elif type(like) is int:
        if type(state) is int and min(like, 0) <= state < LARGEST:
            return
    elif isinstance(state, (type(like), int) if type(like) is float else type(like)):
        return
    raise ValueError(f"{where} is {str(state)[:50]!r}, which is not like {str(like)[:50]!r}")


def _is_ours(value: object) -> bool:
    return type(value).__module__.partition(".")[0] in ("caption", "pytorch_lightning")


def is_number(value: Any) -> bool:
    """Whether a value is a tensor of one number."""
    return isinstance(value, Tensor) and value.numel() == 1


def _confine(state: dict[str, Any], callback: ModelCheckpoint) -> None:
    """Change the state of a `ModelCheckpoint` so that it names checkpoints of the run's folder and nothing else.

    Lightning deletes what the state names. So a name counts only if it is one that the callback gives, of a regular
    file in the folder. A run that was moved keeps its best checkpoint by this, too: Lightning alone would forget the
    best score, and replace the best checkpoint by the next one.
    """
    before, folder = Path(state["dirpath"]), Path(str(callback.dirpath))
    pattern = name_pattern(callback)

    def kept(path: Any) -> str:
        """The path of a checkpoint in the folder, or "" for anything else."""
        if not isinstance(path, str) or not Path(path).is_relative_to(before):
            return ""
        name = Path(path).relative_to(before)
        file = folder / name
        if ".." in name.parts or not re.fullmatch(pattern, name.as_posix()) or not file.is_file():
            return ""
        return str(file) if file.resolve() == folder.resolve() / name else ""  # no link on the way

    if not (state["best_model_score"] is None or is_number(state["best_model_score"])):
        raise ValueError("best_model_score is not a number")
    scores = {kept(path): score for path, score in state["best_k_models"].items() if is_number(score)}
    state["best_k_models"] = {path: score for path, score in scores.items() if path}
    for name in ("best_model_path", "kth_best_model_path", "last_model_path"):
        state[name] = kept(state[name])
    if state["best_model_path"]:
        state["dirpath"] = callback.dirpath  # Lightning compares it


def name_pattern(callback: ModelCheckpoint) -> str:
    """A regular expression for the names of the checkpoints that a callback writes, relative to its folder."""

    def field(match: re.Match[str]) -> str:
        prefix = f"{match[1]}=" if callback.auto_insert_metric_name else ""
        return prefix + r"[-+.\w]+"

    templates = (callback.filename or "{epoch}-{step}", callback.CHECKPOINT_NAME_LAST)
    names = (re.sub(r"\\\{(.*?)(:.*?)?\\\}", field, re.escape(template)) for template in templates)
    return rf"({'|'.join(names)})(-v\d+)?\.ckpt"
