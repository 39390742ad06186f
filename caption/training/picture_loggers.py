"""Pictures for whichever experiment logger of Lightning takes them: each has a call of its own."""

from __future__ import annotations

# isort: split
import numpy as np
from pytorch_lightning.loggers import (
    CometLogger,
    Logger,
    MLFlowLogger,
    TensorBoardLogger,
    WandbLogger,
)

PICTURE_LOGGERS = (TensorBoardLogger, WandbLogger, CometLogger, MLFlowLogger)


def log_picture(logger: Logger, name: str, pixels: np.ndarray, step: int) -> None:
    """Log a picture.

    Args:
        logger: one of PICTURE_LOGGERS.
        name: such as "val/attention"; the same name at another step is a further state of the same picture.
        pixels: (height, width, 3) uint8.
        step: the training step.
    """
    if isinstance(logger, TensorBoardLogger):
        logger.experiment.add_image(name, pixels, step, dataformats="HWC")
    elif isinstance(logger, WandbLogger):
        logger.log_image(name, [pixels], step=step)
    elif isinstance(logger, CometLogger):
        logger.experiment.log_image(pixels, name=name, step=step)
    elif isinstance(logger, MLFlowLogger):
        logger.experiment.log_image(logger.run_id, pixels, f"{name}/{step:08d}.png")
