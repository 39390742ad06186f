"""How Lightning writes checkpoints to the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from caption.encoders import torchvision_compat  # noqa: F401  (before pytorch_lightning, which imports torchvision)

# isort: split
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from caption.atomic import replacing


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint beside its place and renames it, so that the last good one always loads.

    Lightning's own writer moves it from the folder of temporary files, often another file system: the move is then a
    copy, and a kill or a full disk leaves a part of the file.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            torch.save(checkpoint, file)
