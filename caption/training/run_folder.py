"""The folder of a training run: its checkpoints by name, and what must not be overwritten."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn

from caption.core.errors import CheckpointError, UserError, first_few, printable
from caption.core.runtime.atomic_files import is_own, set_aside
from caption.models import checkpoint
from caption.models.model_zoo import model_file
from caption.training.defaults import BEST, LAST
from caption.training.lightning_state import name_pattern


def find_checkpoint(name: str | None, folder: Path, verb: str) -> str | None:
    """The file that --ckpt_path names.

    Args:
        name: a file, or an installed model by its name; "last" or "best", in the run's folder; "auto" for the newest
            one there that can be read, or None if there is none.
        folder: of the run.
        verb: of the command; only fit takes "auto".

    Raises:
        UserError: "auto" for another verb.
        CheckpointError: "auto" finds checkpoints, and all are damaged.
    """
    if name in ("last", "best"):
        return str(folder / f"{name}.ckpt")
    if name != "auto":
        return name and model_file(name)
    if verb != "fit":
        raise UserError(f"--ckpt_path auto resumes a training: caption {verb} takes best, last or a file")
    damaged: dict[Path, CheckpointError] = {}
    for path in (folder / LAST, folder / BEST):
        if path.exists():
            try:
                checkpoint.read(path)
            except CheckpointError as error:
                damaged[path] = error
                rank_zero_warn(str(error))
            else:
                _say(f"caption fit: resuming from {path}")
                for damaged_path in damaged:
                    _set_aside(damaged_path)
                return str(path)
    if damaged:
        raise [*damaged.values()][-1]
    return None


@rank_zero_only
def _set_aside(path: Path) -> None:
    _say(f"caption fit: the damaged {path.name} is now {set_aside(path)}")


@rank_zero_only
def _say(message: str) -> None:
    print(printable(message), file=sys.stderr)


def check_free(run: Path, callback: ModelCheckpoint, resumed: str | None) -> None:
    """Check that a training overwrites neither checkpoints of another one nor files of the user.

    Args:
        run: the folder of the run.
        callback: which writes checkpoints, into that folder or another one.
        resumed: the checkpoint that the training starts from; a link in the folder, too. Its own run's are replaced.

    Raises:
        UserError: there are other files of their names.
    """
    if callback.dirpath is None:  # a new folder with the logs
        return
    folder, option = Path(callback.dirpath), "--trainer.default_root_dir"
    if folder.resolve() != run.resolve():
        option = "dirpath of its ModelCheckpoint"
        if callback._enable_version_counter or not folder.is_dir():  # it replaces nothing
            return
    pattern = name_pattern(callback)
    present = sorted(path.name for path in folder.iterdir() if re.fullmatch(pattern, path.name))
    if resumed is None or Path(os.path.expanduser(resumed)).parent.resolve() != run.resolve():
        what = "of an earlier run: resume it with --ckpt_path auto"
    else:
        present = [name for name in present if not is_own(folder / name)]
        what = "that training has not written: move it away"
    if present:
        raise UserError(
            f"{folder} holds {first_few(map(printable, present))} {what}, or choose another folder with {option}"
        )
