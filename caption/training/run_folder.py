"""The folder of a training run: its checkpoints by name, and what must not be overwritten."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pytorch_lightning.utilities import rank_zero_only, rank_zero_warn

from caption import checkpoint
from caption.errors import CheckpointError, UserError
from caption.training.defaults import BEST, LAST


def find_checkpoint(name: str | None, folder: Path, verb: str) -> str | None:
    """The file that --ckpt_path names.

    Args:
        name: a file; "last" or "best", in the run's folder; "auto" for the newest one there that can be read, or None
            if there is none.
        folder: of the run.
        verb: of the command; only fit takes "auto".

    Raises:
        UserError: "auto" for another verb.
        CheckpointError: "auto" finds checkpoints, and all are damaged.
    """
    if name in ("last", "best"):
        return str(folder / f"{name}.ckpt")
    if name != "auto":
        return name
    if verb != "fit":
        raise UserError(f"--ckpt_path auto resumes a training: caption {verb} takes best, last or a file")
    damage = None
    for path in (folder / LAST, folder / BEST):
        if path.exists():
            try:
                checkpoint.read(path)
            except CheckpointError as error:
                damage = error
                rank_zero_warn(str(error))
            else:
                _say(f"caption fit: resuming from {path}")
                return str(path)
    if damage is not None:
        raise damage
    return None


@rank_zero_only
def _say(message: str) -> None:
    print(message, file=sys.stderr)


def check_free(folder: Path, filename: str, resumed: str | None) -> None:
    """Raise a UserError if a training would overwrite checkpoints of another one.

    Args:
        folder: of the run.
        filename: of the best checkpoint, without suffix; may have {fields}.
        resumed: the checkpoint that the training starts from. Its own folder is free.
    """
    if resumed is not None and Path(resumed).expanduser().resolve().parent == folder.resolve():
        return
    best = re.sub(r"\{[^}]*\}", "*", filename)
    earlier = [path.name for pattern in (LAST, f"{best}.ckpt") for path in sorted(folder.glob(pattern))]
    if earlier:
        raise UserError(
            f"{folder} holds {' and '.join(earlier)} of an earlier run: resume it with --ckpt_path auto, or choose "
            "another folder with --trainer.default_root_dir"
        )
