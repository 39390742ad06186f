"""How Lightning writes checkpoints to the disk, and reads them."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

# isort: split
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO

from caption import checkpoint
from caption.runtime.atomic import replacing


class CheckpointFile(TorchCheckpointIO):
    """Writes a checkpoint beside its place and renames it, so that the last good one always loads.

    Lightning's own writer moves it from the folder of temporary files, often another file system: the move is then a
    copy, and a kill or a full disk leaves a part of the file.

    Reads with `checkpoint.read`, so everything that Lightning restores has been checked.
    Models without training state, safetensors files among them, can be evaluated.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            torch.save(checkpoint, file)

    def load_checkpoint(
        self, path: Any, map_location: Any = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        contents = checkpoint.read(path)
        contents.setdefault("pytorch-lightning_version", version("pytorch-lightning"))
        return contents
