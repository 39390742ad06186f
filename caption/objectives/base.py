"""The interface of training objectives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.core.parts import Part, check_choice
from caption.core.regions import Views
from caption.core.runtime.distributed import process_count, total
from caption.decoders.base import Decoder, Memory, Unrolled
from caption.encoders.refiners.base import Refiner

Unit = Literal["caption", "word", "region"]
"""An element that a sum is divided by the number of."""
PER_CAPTION: tuple[Unit, ...] = ("caption",)
PER_WORD: tuple[Unit, ...] = ("word",)


class CaptionBatch(NamedTuple):
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

    def repeated(self, times: int) -> CaptionBatch:
        """Repeat each caption: (B, K · times, ...), with the copies of a caption next to each other."""
        return CaptionBatch(*(tensor.repeat_interleave(times, 1) for tensor in self))


class Source(NamedTuple):
    """What a memory was made of."""

    views: Views
    """The encoder's regions, before a refiner."""
    refiner: Refiner | None = None
    """The one that has mapped them, for terms that weigh its penalty."""


class Elements(NamedTuple):
    """The numbers of elements of a batch, of all processes together, by which sums are divided."""

    captions: Tensor
    """Captions with at least one step, each counted once for all of its samples."""
    words: Tensor
    """Real steps of these captions."""
    regions: int
    """Regions L of a map."""
    samples: int = 1
    """Samples of each caption, over which every sum is averaged."""

    def mean(self, summed: Tensor, per: Sequence[Unit] = PER_CAPTION) -> Tensor:
        """A process's share of the mean over all processes' elements; all losses are divided here.

        The mean of the shares is the mean over the whole batch. DistributedDataParallel averages gradients in the same
        way, so the gradient is that of one process with the whole batch, also when the processes' counts differ.

        Args:
            summed: the sum over this process's elements.
            per: the elements to divide by; () = the sum over the whole batch.
        """
        numbers: dict[Unit, Tensor | int] = {
            "caption": self.captions,
            "word": self.words,
            "region": self.regions,
        }
        mean = summed / (self.samples / process_count())
        for unit in per:
            mean = mean / numbers[unit]
        return mean


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
        """Create the weights of objectives that have some, and of the objectives inside. Called once.

        Args:
            query_size: length H of the decoder's queries.
            region_sizes: length D of the encoder's region vectors of each view.
            vocabulary_size: number of words V.
        """
        for objective in self._inner():
            objective.build(query_size, region_sizes, vocabulary_size)

    def prepare(self, references: Iterable[Sequence[Sequence[int]]]) -> None:
        """Read the training captions, if this objective or one inside needs them. Called before training.

        Args:
            references: for each image, the word ids of its captions, with the end token; may be read once only.
        """
        if inner := self._inner():
            references = list(references)
            for objective in inner:
                objective.prepare(references)

    def _inner(self) -> list[Objective]:
        lists = (child if isinstance(child, nn.ModuleList) else (child,) for child in self.children())
        return [module for modules in lists for module in modules if isinstance(module, Objective)]

    def forward(
        self, decoder: Decoder, memory: Memory, captions: CaptionBatch, source: Source | None = None
    ) -> Loss:
        """Loss of a batch.

        Args:
            decoder: in training mode, if it is trained.
            memory: of the B images.
            captions: of the B images.
            source: what the memory was made of; None = the memory's own regions, without a refiner.

        Raises:
            UserError: this objective cannot train the decoder's attention.
        """
        raise NotImplementedError


def count_elements(unrolled: Unrolled, samples: int = 1) -> Elements:
    """Count the elements of a batch with `samples` of each caption. All processes must call it."""
    captions = unrolled.has_steps().sum()
    counts = total(torch.stack([captions, torch.full_like(captions, len(unrolled.positions))])) / samples
    return Elements(counts[0], counts[1], unrolled.trace.weights.shape[-1], samples)


def check_units(per: Sequence[Unit]) -> None:
    """Raise ValueError unless all of `per` are units."""
    for unit in per:
        check_choice("per", unit, get_args(Unit))


def word_log_likelihoods(unrolled: Unrolled, targets: Tensor) -> Tensor:
    """log p(y[t] | y[<t], a) at the real steps, (N,), in nats; in float32 at least, also for logits in bf16."""
    logits = unrolled.logits
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return -functional.cross_entropy(logits, unrolled.pack(targets), reduction="none")
