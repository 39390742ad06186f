"""A configuration tried once before any data is read: with a few words, one empty image, and one step of the optimizer.

So a size, a rate or an optimizer that cannot work is refused before anything is read or written.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from pytorch_lightning.utilities.seed import isolate_rng
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from caption.captioner import Captioner
from caption.core.batch import CaptionBatch
from caption.core.errors import UserError, kind_and_reason, own_code_message
from caption.core.regions import Views
from caption.core.tensor_tree import select_images
from caption.data.photos import ImageTransform
from caption.models.checkpoint.rebuild import without_drawing
from caption.text.vocabulary import START, Vocabulary
from caption.training.module import CaptionTraining
from caption.training.optimizers import interval_of, make_optimizer, make_schedule

MOST_EPOCHS = 1000
"""A schedule that is stepped after each epoch is tried for at most this number of them."""


def try_configuration(
    arguments: Callable[[], Mapping[str, Any]], transform: ImageTransform, max_epochs: int | None
) -> None:
    """Construct a training, describe an empty image to its first word, and compute a loss; then a step of the optimizer
    and of the schedule.

    Args:
        arguments: makes those of `CaptionTraining`, without vocabulary and transform.
        transform: of the data; decides the size of the image.
        max_epochs: of the training; None or negative = not known.

    Raises:
        UserError: the model, the objective, the optimizer or the schedule cannot be used; the message says why.
    """

    with warnings.catch_warnings(), isolate_rng():
        warnings.simplefilter("ignore")  # training will give them
        with _refused("model"), torch.no_grad():
            vocabulary = Vocabulary.build(["one two three"], min_count=1)
            with without_drawing():
                training = CaptionTraining(vocabulary=vocabulary, transform=transform, **arguments())
            for weight in training.parameters():
                weight.zero_()  # its memory may hold anything
            captioner = training.captioner.eval()
            size = captioner.transform.height, captioner.transform.width
            views = captioner.encoder(torch.zeros(1, 3, *size))
            _first_word(captioner, views)
            _try_objective(training, views)
        for name, weight in training.named_parameters():
            if not weight.numel():
                shape = tuple(weight.shape)
                raise UserError(
                    f"the configuration cannot be used: {name} would be an empty tensor {shape}, so a size in the "
                    "section model is 0"
                )
        with _refused("model.optimizer"):
            optimizer = _try_optimizer(training)
        with _refused("model.scheduler"):
            schedule = make_schedule(optimizer, training.scheduler, training.monitor, training.mode)
            interval = interval_of(schedule, training.scheduler_interval)
            _try_schedule(optimizer, schedule, 1 if interval == "step" else max_epochs or 1)


@contextmanager
def _refused(section: str) -> Iterator[None]:
    """Context that reports what a section of the configuration raises, of whatever type it is."""
    try:
        yield
    except UserError as error:
        text = str(error)
        known = text.startswith("the configuration cannot be used")
        raise UserError(text if known else f"the configuration cannot be used: {text}") from error
    except Exception as error:
        fault = own_code_message(error) or f"in the section {section}, {kind_and_reason(error)}"
        raise UserError(f"the configuration cannot be used: {fault}") from error


def _first_word(captioner: Captioner, views: Views) -> None:
    memory = captioner.project(views)
    captioner.decoder.step(captioner.decoder.start(memory), torch.full((1, 1), START))


def _try_objective(training: CaptionTraining, views: Views) -> None:
    """Compute the loss of a caption of two images, both with the views of one."""
    captioner, objective = training.captioner, training.objective
    sentence = torch.tensor([captioner.vocabulary.encode("one two three")])
    words = torch.cat((torch.full((1, 1), START), sentence[:, :-1]), 1)
    captions = CaptionBatch(
        words.expand(2, 1, -1), sentence.expand(2, 1, -1), torch.full((2, 1), words.shape[1])
    )
    views = select_images(views, torch.tensor([0, 0]))
    captioner.decoder.train()
    try:
        objective.prepare([sentence.tolist()] * 2)
        objective(captioner, views, captions)
    except UserError:
        raise
    except Exception:  # perhaps of so little data
        return


def _try_optimizer(training: CaptionTraining) -> Optimizer:
    """Step the optimizer with small weights: of as many dimensions, in the same groups."""

    def small(weights: Iterable[nn.Parameter]) -> nn.ParameterList:
        return nn.ParameterList(torch.zeros([min(side, 2) for side in weight.shape]) for weight in weights)

    encoder = [*training.captioner.encoder.parameters()]
    others = [weight for weight in training.parameters() if all(weight is not other for other in encoder)]
    parts = nn.ModuleList([small(encoder), small(others)])
    optimizer = make_optimizer(training.optimizer, parts, parts[0], training.encoder_learning_rate)
    _check_rates(optimizer, "model.optimizer", "before the first step")
    for weight in parts.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step(lambda: 0.0)
    return optimizer


def _try_schedule(optimizer: Optimizer, schedule: LRScheduler | None, steps: int) -> None:
    if schedule is None or isinstance(schedule, ReduceLROnPlateau):
        return
    for number in range(min(max(steps, 1), MOST_EPOCHS)):
        _check_rates(optimizer, "model.scheduler", f"after {number} of its steps")
        schedule.step()


def _check_rates(optimizer: Optimizer, section: str, when: str) -> None:
    for rate in (float(group["lr"]) for group in optimizer.param_groups):
        if not 0 <= rate < math.inf:
            raise UserError(
                f"the configuration cannot be used: {section} gives the learning rate {rate:g} {when}: it must be at "
                "least 0"
            )
