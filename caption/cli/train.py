"""`caption fit | validate | test | predict`: Lightning's command line over our model and data."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import caption.torchvision_compat  # noqa: F401  (before pytorch_lightning, which imports torchvision)

# isort: split
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint, RichProgressBar
from pytorch_lightning.cli import LightningArgumentParser, LightningCLI
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger

from caption import checkpoint
from caption.data.images import ImageTransform
from caption.data.module import CaptionData
from caption.data.vocabulary import Vocabulary
from caption.errors import CheckpointError, UserError
from caption.training import CaptionTraining

DEFAULT_FOLDER = "runs/default"


class CaptionCLI(LightningCLI):
    """One folder per run: `trainer.default_root_dir` holds best.ckpt, last.ckpt and the logs of each start."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_lightning_class_args(ModelCheckpoint, "checkpoint")
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.set_defaults(
            {
                "checkpoint.monitor": "val/CIDEr",
                "checkpoint.mode": "max",
                "checkpoint.filename": "best",
                "checkpoint.save_last": True,
                "checkpoint.enable_version_counter": False,
                "early_stopping.monitor": "val/CIDEr",
                "early_stopping.mode": "max",
                "early_stopping.patience": 5,
                "trainer.default_root_dir": DEFAULT_FOLDER,
            }
        )
        parser.link_arguments("trainer.default_root_dir", "checkpoint.dirpath")
        parser.link_arguments("data", "model.vocabulary", self._vocabulary, apply_on="instantiate")
        parser.link_arguments("data", "model.transform", self._transform, apply_on="instantiate")

    def _stored(self) -> dict[str, Any] | None:
        """What the checkpoint given with --ckpt_path says of its model, if one is given."""
        path = self.config[self.config["subcommand"]].get("ckpt_path")
        if path in (None, "best", "last", "hpc", "registry"):
            return None
        return checkpoint.read(path)["captioner"]

    def _vocabulary(self, data: CaptionData) -> Vocabulary:
        """A checkpoint's words are its own, whatever data it meets."""
        stored = self._stored()
        if stored is not None:
            data.vocabulary = Vocabulary.from_dict(stored["vocabulary"])
        return data.vocabulary

    def _transform(self, data: CaptionData) -> ImageTransform:
        stored = self._stored()
        if stored is not None:
            data.transform = ImageTransform.from_dict(stored["transform"])
        return data.transform

    def _parse_ckpt_path(self) -> None:
        # Lightning would load the file first, with an error message for programmers.
        self._stored()
        super()._parse_ckpt_path()

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        config = self.config_init[self.config_init["subcommand"]]["trainer"]
        folder = Path(config["default_root_dir"])
        if config.get("logger") in (None, True):
            kwargs["logger"] = self._loggers(folder)
        if config.get("enable_progress_bar") is not False:
            self.trainer_defaults.setdefault("callbacks", [])
            self.trainer_defaults["callbacks"].append(RichProgressBar(console_kwargs={"stderr": True}))
        return super().instantiate_trainer(**kwargs)

    def _loggers(self, folder: Path) -> list[Any]:
        tensorboard = TensorBoardLogger(str(folder), name="logs")
        return [tensorboard, CSVLogger(str(folder), name="logs", version=tensorboard.version)]

    def before_fit(self) -> None:
        """Nothing is lost: a new run does not write over the checkpoints of another."""
        folder = Path(self.trainer.default_root_dir)
        if (
            self.config[self.config["subcommand"]].get("ckpt_path") is None
            and (folder / "last.ckpt").exists()
        ):
            raise UserError(
                f"{folder} holds the checkpoints of an earlier run: resume it with --ckpt_path {folder}/last.ckpt, "
                "or choose another folder with --trainer.default_root_dir"
            )


def main(args: list[str]) -> int:
    """Run one of Lightning's verbs; `args` begins with it."""
    run(args)
    return 0


def run(args: list[str]) -> CaptionCLI:
    """As `main`, but gives the trainer, model and data that did it."""
    # Known and wanted: validation on few workers, and a checkpoint folder that is not empty on resuming.
    for message in (
        ".*args parameter is intended.*",
        ".*does not have many workers.*",
        ".*exists and is not empty.*",
        ".*LeafSpec.*",
    ):
        warnings.filterwarnings("ignore", message)
    torch.set_float32_matmul_precision("high")
    try:
        return CaptionCLI(
            CaptionTraining,
            CaptionData,
            args=args,
            seed_everything_default=0,
            save_config_kwargs={"overwrite": True},
            parser_kwargs={"default_env": False},
        )
    except RuntimeError as error:
        if "Error(s) in loading state_dict" not in str(error):
            raise
        raise CheckpointError(f"the checkpoint does not fit this configuration: {error}") from error
