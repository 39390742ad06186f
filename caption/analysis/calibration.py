"""Calibration: are words that the model gives 60 % right in 60 of 100 cases? And the temperature that makes it so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from caption.analysis.reliability import Reliability
from caption.analysis.replay import batches
from caption.captioner import Captioner
from caption.core.errors import UserError
from caption.core.runtime.eval_mode import eval_mode
from caption.data.batches import pad_captions
from caption.data.decoding import Photo

TEMPERATURES = np.geomspace(0.5, 2.0, 61)
"""Those that are tried; neighbours differ by 2.3 %."""


@dataclass(frozen=True)
class TemperatureFit:
    """How well the probabilities of N words fit, as they are and at the best temperature."""

    temperature: float
    """T of the smallest NLL, p ∝ exp(logits / T): above 1 for a model that is too sure."""
    nll: float
    """Mean −log p of a word, in nats, at T = 1."""
    nll_after: float
    """The same at `temperature`."""
    error: float
    """Expected calibration error at T = 1: the mean distance between the probability of the likeliest word and how
    often it is the right one, over ten classes of that probability (Guo et al. 2017, eq. 3)."""
    error_after: float
    """The same at `temperature`."""
    words: int
    """N, end tokens included."""


def calibrate(
    captioner: Captioner, photos: Iterable[Photo], references: Sequence[Sequence[str]], batch_size: int = 32
) -> TemperatureFit:
    """Fit a temperature on captions by people (Guo et al. 2017, "On Calibration of Modern Neural Networks", 4.2).

    Args:
        captioner: the model; it is not changed, see `divide_logits`.
        photos: of a split that neither trained the model nor reports its scores, such as validation.
        references: the captions of each photo, at least one.
        batch_size: photos at once.

    Raises:
        UserError: there are no captions.
        caption.core.errors.ImageError: a photo cannot be read.
    """
    if not any(references):
        raise UserError("calibration needs captions, and there are none")
    columns, first = [], 0
    with eval_mode(captioner), torch.no_grad():
        for batch in batches(photos, batch_size):
            columns.append(_measure(captioner, batch, references[first : first + len(batch)]))
            first += len(batch)
    target, largest, right, log_sums = map(np.concatenate, zip(*columns, strict=True))
    nlls = (log_sums - target[:, None] / TEMPERATURES).mean(0)
    one, best = int(np.abs(TEMPERATURES - 1).argmin()), int(nlls.argmin())
    sure = np.exp(largest[:, None] / TEMPERATURES - log_sums)
    return TemperatureFit(
        float(TEMPERATURES[best]), float(nlls[one]), float(nlls[best]),
        Reliability(sure[:, one], right).error, Reliability(sure[:, best], right).error, len(target),
    )  # fmt: skip


def divide_logits(captioner: Captioner, temperature: float) -> None:
    """Make the temperature a part of the model: divides the weights and biases of its last layer.

    Search then sees p ∝ exp(logits / T), and a saved model keeps it.

    Raises:
        UserError: the temperature is not above 0; the last layer is not known, or shares its weights with the words.
    """
    if not temperature > 0:
        raise UserError(f"a temperature must be above 0, not {temperature}")
    decoder = captioner.decoder
    last = getattr(getattr(decoder, "readout", decoder), "to_words", None)
    if not isinstance(last, nn.Linear) or last.weight is getattr(
        getattr(decoder, "embed", None), "weight", None
    ):
        raise UserError(
            f"the logits of {type(decoder).__name__} cannot be divided: it needs a last layer with weights of its own"
        )
    with torch.no_grad():
        for parameter in last.parameters():
            parameter.div_(temperature)


def _measure(
    captioner: Captioner, photos: Sequence[Photo], references: Sequence[Sequence[str]]
) -> tuple[np.ndarray, ...]:
    """Of each word: its logit, the largest logit, whether both are the same word's, log Σ exp(logits / T) for all T."""
    ids = [[captioner.vocabulary.encode(text) for text in texts] for texts in references]
    inputs, targets, lengths = (each.to(captioner.device) for each in pad_captions(ids))
    unrolled = captioner.unroll(captioner.encode(photos), inputs, lengths)
    logits, words = unrolled.logits.float(), unrolled.pack(targets)
    log_sums = [torch.logsumexp(logits / float(temperature), 1) for temperature in TEMPERATURES]
    target, largest = logits.gather(1, words[:, None])[:, 0], logits.amax(1)
    columns = target, largest, logits.argmax(1) == words, torch.stack(log_sums, 1)
    return tuple(column.cpu().numpy() for column in columns)
