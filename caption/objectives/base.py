"""The interface of training objectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.decoders.base import Decoder, Memory, Unrolled
from caption.parts import Part
from caption.regions import Views
from caption.runtime.distributed import mean


class Captions(NamedTuple):
    """The captions of B images, K each, for teacher forcing."""

    words: Tensor
    """(B, K, T) int64, the input words: the start token, then the caption without its end token."""
    targets: Tensor
    """(B, K, T) int64, the target word of each step; arbitrary where there is no step."""
    lengths: Tensor
    """(B, K) int64, the number of real steps of each caption; 0 for an absent caption."""

    def real(self) -> Tensor:
        """(B, K, T) bool: True where there is a step."""
        return torch.arange(self.words.shape[2], device=self.words.device) < self.lengths[..., None]

    def repeated(self, times: int) -> Captions:
        """Repeat each caption: (B, K · times, ...), with the copies of a caption next to each other."""
        return Captions(*(tensor.repeat_interleave(times, 1) for tensor in self))


class Counts(NamedTuple):
    """What the terms of a loss are divided by: numbers of a batch, as means over the processes (`processes.mean`)."""

    captions: Tensor
    """Captions with at least one step."""
    words: Tensor
    """Real steps of all captions."""


class Loss(NamedTuple):
    """The loss of a batch, and numbers to log.

    When several processes train, each computes its share, and the mean of the shares is the number of the whole batch.
    """

    value: Tensor
    """The loss, a scalar with gradient."""
    logged: dict[str, Tensor]
    """Scalars without gradient to log, by name."""
    unrolled: Unrolled
    """The decoder's output for the captions, for diagnostics."""


class Objective(Part, nn.Module):
    """Base class of objectives. They are means over the captions of a batch, the 1/N Σ_n of the paper, unless
    documented otherwise. The batch is that of all processes together.

    An objective unrolls the decoder itself, because some need several samples of each caption.
    """

    def build(self, query_size: int, region_sizes: tuple[int, ...], vocabulary_size: int) -> None:
        """Create the weights of objectives that have some. Called once.

        Args:
            query_size: length H of the decoder's queries.
            region_sizes: length D of the encoder's region vectors of each view.
            vocabulary_size: number of words V.
        """

    def prepare(self, references: Iterable[Sequence[Sequence[int]]]) -> None:
        """Learn what the objective needs of the training captions. Called before training.

        Args:
            references: for each image, the word ids of its captions, with the end token.
        """

    def forward(
        self, decoder: Decoder, memory: Memory, captions: Captions, views: Views | None = None
    ) -> Loss:
        """Loss of a batch.

        Args:
            decoder: in training mode, if it is trained.
            memory: of the B images.
            captions: of the B images.
            views: the encoder's regions, before a refiner; None = those of the memory.

        Raises:
            UserError: this objective cannot train the decoder's attention.
        """
        raise NotImplementedError


def counts(unrolled: Unrolled) -> Counts:
    """The captions and words to divide by. All processes must call it."""
    there = unrolled.has_steps().sum()
    return Counts(*mean(torch.stack([there, torch.full_like(there, len(unrolled.positions))])))


def word_log_likelihoods(unrolled: Unrolled, targets: Tensor) -> Tensor:
    """log p(y[t] | y[<t], a) at the real steps, (N,), in nats; in float32 at least, also for logits in bf16."""
    logits = unrolled.logits
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return -functional.cross_entropy(logits, unrolled.pack(targets), reduction="none")
