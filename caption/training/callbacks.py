"""Callbacks: what training prints, and pictures after every epoch."""

from __future__ import annotations

import math
import sys
import time
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import RichProgressBar, WeightAveraging
from pytorch_lightning.loggers import CometLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from pytorch_lightning.utilities import rank_zero_warn
from pytorch_lightning.utilities.seed import isolate_rng

from caption.attention.stochastic import override_at_test
from caption.core.errors import ImageError, UserError, printable

if TYPE_CHECKING:
    from caption.results.caption import Caption

DPI = 80
PICTURE_LOGGERS = (TensorBoardLogger, WandbLogger, CometLogger, MLFlowLogger)


class AttentionFigures(Callback):
    """Captions the first validation images after each validation, and draws the attention.

    TensorBoard, Weights & Biases, Comet and MLflow show two pictures over the epochs: "val/attention", all images with
    the largest α over the words of their captions; "val/attention_by_word", the first image with a panel for every
    word. Captions come from the validation's search. Without a logger that takes pictures, nothing is drawn. The
    callback does not change training, because it restores the state of the random number generators.

    Args:
        images: number of images to draw; 0 for none.

    Raises:
        UserError: `images` is negative.
    """

    def __init__(self, images: int = 4) -> None:
        if images < 0:
            raise UserError(
                f"attention figures cannot be drawn of {images} images: give 1 or more, or 0 for none"
            )
        self.images = images

    def on_validation_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Draw and log the pictures: in training, in the first process, if a logger takes them.

        After the last batch, while averaged weights are still in the place of the model's own.
        """
        if batch_idx + 1 < trainer.num_val_batches[dataloader_idx]:
            return
        loggers = [logger for logger in trainer.loggers if isinstance(logger, PICTURE_LOGGERS)]
        enabled = self.images and loggers and trainer.is_global_zero
        if not enabled or trainer.state.fn != "fit" or trainer.sanity_checking:
            return
        try:
            captions = self._captions(trainer, pl_module)
        except ImageError as error:  # training on precomputed regions does not open photos
            rank_zero_warn(f"no attention figures are drawn: {error}")
            return
        from caption.visualize import contact_sheet, plot_caption  # here, because Matplotlib is slow to load
        from caption.visualize.figure_file import pixels

        first = captions[0]
        assert first.image is not None
        figures = {
            "val/attention": contact_sheet(captions, columns=2),
            "val/attention_by_word": plot_caption(first, first.image),
        }
        for name, figure in figures.items():
            picture = pixels(figure, DPI)
            for logger in loggers:
                log_picture(logger, name, picture, trainer.global_step)

    def _captions(self, trainer: Trainer, module: Any) -> list[Caption]:
        images = trainer.datamodule.splits["val"][: self.images]  # type: ignore[attr-defined]
        validation_setting = override_at_test(module.captioner, module.evaluator.at_test)
        with isolate_rng(), trainer.precision_plugin.forward_context(), validation_setting:
            torch.manual_seed(0)  # samples differ between epochs only through training
            return module.captioner.describe([image.path for image in images], module.validation_search)


class TrainingBar(RichProgressBar):
    """Lightning's bar, on one line, with the NLL per word of the last batch, or its loss if the objective logs no NLL.

    Epochs count from 1. The bar vanishes at the end; in a file there is none. Reading the number waits for the GPU, so
    it is read only as often as the bar is drawn.
    """

    def __init__(self) -> None:
        self._shown: dict[str, Any] = {}
        rate = 10 if sys.stderr.isatty() else 0  # 0 turns the bar off
        super().__init__(refresh_rate=rate, console_kwargs={"stderr": True})

    @property
    def sanity_check_description(self) -> str:
        return "Start"

    def configure_columns(self, trainer: Trainer) -> list[Any]:
        columns = super().configure_columns(trainer)[:-1]  # without the speed
        columns[1].bar_width = 12  # leaves room for the rest in 80 columns
        return columns

    def get_metrics(self, trainer: Trainer, pl_module: LightningModule) -> dict[str, Any]:
        if not self._shown or trainer.fit_loop.batch_idx % self.refresh_rate == 0:
            metrics = trainer.callback_metrics
            name = next((name for name in ("NLL", "loss") if f"train/{name}" in metrics), None)
            self._shown = {} if name is None else {name: float(metrics[f"train/{name}"])}
        return self._shown

    def _get_train_description(self, current_epoch: int) -> str:
        last = "" if self.trainer.max_epochs in (None, -1) else f"/{self.trainer.max_epochs}"
        return f"Epoch {current_epoch + 1}{last}".ljust(len(self.validation_description))

    def _stop_progress(self) -> None:
        if self.progress is not None:
            self.progress.live.transient = True
        super()._stop_progress()


class EpochReport(Callback):
    """Prints a line to stderr after each validation: scores, seconds, and whether they are the best so far.

    Both NLL are per word. That of training is the mean of its batches since the last line; an objective that logs none,
    such as `SelfCriticalSequence`, has a dash. Epochs count from 1; a model that training starts from is validated
    before the first step, too: "start". The metric that chooses the checkpoint decides what is best.

    Args:
        samples: print the captions of this many validation images, the first ones, below each line.
    """

    def __init__(self, samples: int = 0) -> None:
        self.samples = samples
        self.best: float | None = None
        self.start = math.nan
        """The watched metric of the model that training started from, if that is another one's."""
        self._begin()

    def state_dict(self) -> dict[str, float]:
        return {"start": self.start}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        self.start = state_dict["start"]

    def _begin(self) -> None:
        """Begin to measure what the next line reports."""
        self.since = time.monotonic()
        self.nll: Any = 0.0
        self.batches = 0

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        if pl_module.warm_start is not None and not pl_module.restored and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            trainer.num_sanity_val_steps = math.inf

    def on_sanity_check_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin()
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            # The averages were copied before `warm_start` loaded the weights, and they are validated.
            if isinstance(callback, WeightAveraging) and callback._average_model is not None:
                callback._average_model.module.load_state_dict(pl_module.state_dict())

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._begin()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, *batch: Any) -> None:
        self.nll += trainer.callback_metrics.get("train/NLL", math.nan)
        self.batches += 1

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the row and some captions of a validation in training, in the first process."""
        evaluation = getattr(pl_module, "evaluation", None)
        if (
            trainer.state.fn != "fit"
            or (trainer.sanity_checking and trainer.num_sanity_val_steps != math.inf)
            or not trainer.is_global_zero
            or not evaluation
        ):
            return
        if self.best is None:
            _print_row("epoch", "train NLL", "val NLL", "CIDEr", "seconds")
        when: str | int = trainer.current_epoch + 1
        if trainer.sanity_checking:
            when, self.start = "start", float(trainer.callback_metrics.get(str(pl_module.monitor), math.nan))
        of_training = self.nll / max(1, self.batches)
        nll = f"{of_training:.4f}" if self.batches and not math.isnan(of_training) else "–"
        scores = [f"{evaluation.numbers[name]:.4f}" for name in ("NLL", "CIDEr")]
        note = "  best so far" * self._is_best(trainer, pl_module)
        _print_row(when, nll, *scores, f"{time.monotonic() - self.since:.0f}", note=note)
        for image, text in islice(evaluation.captions.items(), self.samples):
            print(printable(f"  {image}: {text}"), file=sys.stderr)
        self._begin()

    def _is_best(self, trainer: Trainer, module: Any) -> bool:
        """Whether the watched metric is the best so far; a resumed run counts its earlier validations."""
        sign = 1 if module.mode == "max" else -1
        value = sign * float(trainer.callback_metrics.get(module.monitor, math.nan))
        if self.best is None:
            score = getattr(trainer.checkpoint_callback, "best_model_score", None)
            self.best = -math.inf if score is None else sign * float(score)
        previous, self.best = self.best, max(self.best, value)
        return value > previous


def _print_row(*cells: object, note: str = "") -> None:
    print("".join(f"{cell:>11}" for cell in cells) + note, file=sys.stderr)


def log_picture(logger: Logger, name: str, pixels: np.ndarray, step: int) -> None:
    """Log a picture (height, width, 3) uint8; each logger has a call of its own."""
    if isinstance(logger, TensorBoardLogger):
        logger.experiment.add_image(name, pixels, step, dataformats="HWC")
    elif isinstance(logger, WandbLogger):
        logger.log_image(name, [pixels], step=step)
    elif isinstance(logger, CometLogger):
        logger.experiment.log_image(pixels, name=name, step=step)
    elif isinstance(logger, MLFlowLogger):
        logger.experiment.log_image(logger.run_id, pixels, f"{name}/{step:08d}.png")
