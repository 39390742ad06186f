"""The exact bound L_s and log p(y|a) by enumeration of all paths, as a reference for estimators of hard attention.

A path is a sequence of regions, one for each of a caption's T steps. There are L^T paths, so grid and caption must be
small. Path n reads region ⌊n / L^t⌋ mod L at step t.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from caption.attention.stochastic import override_draws
from caption.core.batch import CaptionBatch
from caption.core.regions import Views
from caption.decoders.base import Decoder
from caption.objectives.base import word_log_likelihoods


@contextmanager
def fixed_paths(decoder: Decoder, paths: Tensor) -> Iterator[None]:
    """Context in which the decoder's attention follows the paths with the given numbers (B, K) in training.

    Args:
        decoder: its attention samples one region per step.
        paths: (B, K) int64, the number of each hypothesis' path, in the order of the unroll: images and captions are
            sorted by length, the longest first.

    Raises:
        UserError: the decoder has no attention that samples.
    """
    step = 0

    def restart(*_: object) -> None:
        nonlocal step
        step = 0

    def draw(weights: Tensor) -> Tensor:
        nonlocal step
        images, hypotheses, regions = weights.shape
        digits = paths.to(weights.device)[:images, :hypotheses] // regions**step % regions
        step += 1
        return digits

    with override_draws(decoder, draw), decoder.register_forward_pre_hook(restart):
        yield


class Paths(NamedTuple):
    """All P = L^T paths of a caption, in unspecified order, with gradient."""

    log_prob: Tensor
    """(P,) log p(s|a)."""
    log_likelihood: Tensor
    """(P,) log p(y|s,a)."""

    @property
    def bound(self) -> Tensor:
        """L_s = Σ_s p(s|a) log p(y|s,a), eq. 10."""
        return (self.log_prob.exp() * self.log_likelihood).sum()


def every_path(decoder: Decoder, views: Views, captions: CaptionBatch) -> Paths:
    """Follow all paths of one caption of one image in parallel.

    Args:
        decoder: in training mode, with hard attention, and without dropout.
        views: of one image with L regions.
        captions: one caption, B = K = 1, of T steps.
    """
    steps = int(captions.lengths)
    number = views[0].vectors.shape[1] ** steps
    copies = captions.repeated(number)
    with fixed_paths(decoder, torch.arange(number)[None]):
        unrolled = decoder(decoder.project(views), copies.words, copies.lengths)
    trace = unrolled.trace
    assert trace.log_prob is not None
    log_likelihoods = word_log_likelihoods(unrolled, copies.targets)
    sums = [unrolled.unpack(values)[0].sum(-1) for values in (trace.log_prob, log_likelihoods)]
    return Paths(*sums)
