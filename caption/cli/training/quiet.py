"""What Lightning says that tells a user nothing, and the context in which it is hidden."""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import rich

# Warnings about intended behaviour: arguments from Python, decoding in the main process, resuming into a checkpoint
# folder that is not empty, a frozen encoder, checkpoints of earlier releases with other callbacks, and numbers that
# are logged by several processes (each of which has those of all the images).
INTENDED = (
    ".*args parameter is intended.*",
    ".*does not have many workers.*",
    ".*exists and is not empty.*",
    ".*LeafSpec.*",
    ".*in eval mode at the start of training.*",
    ".*callbacks used to create the checkpoint need to be provided.*",
    r".*It is recommended to use `self.log\('(val|test)[/_].*sync_dist=True.*",
)
# Evaluating a checkpoint in another folder than that of its training is intended; resuming it there deserves a warning.
INTENDED_IN_EVALUATION = ".*The dirpath has changed from.*"
UNINFORMATIVE = re.compile(
    "💡 Tip:|[TGH]PU available:|Seed set to|`Trainer.fit` stopped: `max_epochs|LOCAL_RANK:|Using .* Precision"
    "|Restoring states from|Restored all states from"
)
"""Beginnings of Lightning's log messages without information."""


@contextmanager
def quiet(evaluating: bool) -> Iterator[None]:
    """Hide Lightning's advertisements and warnings about intended behaviour; print its tables to stderr."""
    names = ("pytorch_lightning.utilities.rank_zero", "lightning_fabric.utilities.rank_zero")
    cuda = "pytorch_lightning.accelerators.cuda"
    loggers = [logging.getLogger(name) for name in (*names, "lightning_fabric.utilities.seed", cuda)]
    for logger in loggers:
        logger.addFilter(_is_information)
    rich.reconfigure(stderr=True)
    try:
        with warnings.catch_warnings():
            for message in (*INTENDED, INTENDED_IN_EVALUATION)[: None if evaluating else -1]:
                warnings.filterwarnings("ignore", message)
            yield
    finally:
        rich.reconfigure()
        for logger in loggers:
            logger.removeFilter(_is_information)


def _is_information(record: logging.LogRecord) -> bool:
    return UNINFORMATIVE.match(record.getMessage()) is None
