"""Every logger of Lightning that takes pictures gets them by its own call."""

from unittest.mock import MagicMock

import numpy as np
from pytorch_lightning.loggers import CometLogger, MLFlowLogger, TensorBoardLogger, WandbLogger

from caption.training.callbacks import PICTURE_LOGGERS, log_picture

PIXELS = np.full((4, 6, 3), 51, np.uint8)


def logger_of(kind):
    """A logger of this class without its service."""

    class Recorder(kind):
        experiment = MagicMock()
        run_id = "run 7"
        log_image = MagicMock()

        def __init__(self):
            pass

    return Recorder()


def test_tensorboard():
    logger = logger_of(TensorBoardLogger)
    log_picture(logger, "val/attention", PIXELS, 12)
    logger.experiment.add_image.assert_called_once_with("val/attention", PIXELS, 12, dataformats="HWC")


def test_weights_and_biases():
    logger = logger_of(WandbLogger)
    log_picture(logger, "val/attention", PIXELS, 12)
    logger.log_image.assert_called_once_with("val/attention", [PIXELS], step=12)


def test_comet():
    logger = logger_of(CometLogger)
    log_picture(logger, "val/attention", PIXELS, 12)
    logger.experiment.log_image.assert_called_once_with(PIXELS, name="val/attention", step=12)


def test_mlflow():
    logger = logger_of(MLFlowLogger)
    log_picture(logger, "val/attention", PIXELS, 12)
    logger.experiment.log_image.assert_called_once_with("run 7", PIXELS, "val/attention/00000012.png")


def test_all_of_them_are_listed():
    assert set(PICTURE_LOGGERS) == {TensorBoardLogger, WandbLogger, CometLogger, MLFlowLogger}
