"""The interface of training objectives and of the terms of a loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from caption.attention.maps import single_precision
from caption.core.batch import CaptionBatch
from caption.core.parts import Part, check_choice
from caption.core.regions import Views
from caption.core.runtime.distributed import process_count, total
from caption.decoders.base import Unrolled

if TYPE_CHECKING:
    from caption.captioner import Captioner

Unit = Literal["caption", "word", "region", "image"]
"""A kind of element whose number a sum is divided by."""
PER_CAPTION: tuple[Unit, ...] = ("caption",)
PER_WORD: tuple[Unit, ...] = ("word",)
PER_IMAGE: tuple[Unit, ...] = ("image",)


class Loss(NamedTuple):
    """The loss of a batch, and numbers to log.

    With several processes, each computes its share, and the mean of the shares is the value for the whole batch.
    """

    value: Tensor
    """The loss, a scalar with gradient."""
    logged: dict[str, Tensor]
    """Scalars without gradient to log, by name: the NLL per word, each term without its weight."""
    unrolled: Unrolled
    """The decoder's output for the captions, for diagnostics."""


class Objective(Part, nn.Module):
    """Base class of objectives. Unless documented otherwise, they are means over the captions of a batch, the 1/N Σ_n
    of the paper. The batch is that of all processes together.

    An objective unrolls the decoder itself, because some objectives need several samples of each caption. Every part of
    a loss is a sum over the elements of a batch, and `Elements.mean` divides it.
    """

    def build(self, query_size: int, region_sizes: tuple[int, ...], vocabulary_size: int) -> None:
        """Create the weights, if there are any, and those of inner objectives. Called once.

        Args:
            query_size: length H of the decoder's queries.
            region_sizes: length D of the encoder's region vectors of each view.
            vocabulary_size: number of words V.
        """
        for objective in self._inner():
            objective.build(query_size, region_sizes, vocabulary_size)

    def prepare(self, references: Iterable[Sequence[Sequence[int]]]) -> None:
        """Read the training captions, if this objective or an inner one needs them. Called before training.

        Args:
            references: for each image, the word ids of its captions, with the end token; can be iterated only once.
        """
        if inner := self._inner():
            references = list(references)
            for objective in inner:
                objective.prepare(references)

    def _inner(self) -> list[Objective]:
        lists = (child if isinstance(child, nn.ModuleList) else (child,) for child in self.children())
        return [module for modules in lists for module in modules if isinstance(module, Objective)]

    def forward(self, captioner: Captioner, views: Views, captions: CaptionBatch) -> Loss:
        """Loss of a batch.

        Args:
            captioner: its refiner and decoder are trained; they are in training mode during training.
            views: the encoder's regions of the B images, before a refiner.
            captions: of the B images.

        Raises:
            UserError: this objective cannot train the decoder's attention.
        """
        raise NotImplementedError


class Term(Part, nn.Module):
    """Base class of the terms of a loss besides −log p. λ Σ / N is added to the loss, where N counts the elements of
    the batch.

    Args:
        weight: λ.
        per: the elements that N counts. ("caption",) gives a mean over captions, ("caption", "region") a mean over
            captions and regions, and () an undivided sum, whose weight grows with the batch.
    """

    name: str
    """The name under which Σ / N is logged."""

    def __init__(self, weight: float = 1.0, per: Sequence[Unit] = PER_CAPTION) -> None:
        super().__init__()
        check_units(per)
        self.weight = weight
        self.per = per

    def forward(self, unrolled: Unrolled, captioner: Captioner) -> Tensor:
        """Σ over the elements of this process's batch, a scalar with gradient.

        Args:
            unrolled: the decoder's output for the captions.
            captioner: its decoder has the properties of the weights and the penalty of the attention; its refiner, if
                there is one, may also have a penalty.
        """
        raise NotImplementedError


class Elements(NamedTuple):
    """The numbers of elements in a batch of all processes together, by which sums are divided."""

    images: Tensor
    """Images with at least one of these captions."""
    captions: Tensor
    """Captions with at least one step; the samples of a caption are counted once."""
    words: Tensor
    """Real steps of these captions."""
    regions: Tensor | int
    """Regions L of a map; with masks, the mean number of real ones of a caption's image."""
    samples: int = 1
    """Samples of each caption, over which every sum is averaged."""

    def mean(self, summed: Tensor, per: Sequence[Unit] = PER_CAPTION) -> Tensor:
        """A process's share of the mean over the elements of all processes; all losses are divided here.

        The mean of the shares is the mean over the whole batch. DistributedDataParallel averages gradients in the same
        way, so the gradient is that of one process with the whole batch, even if the processes' counts differ.

        Args:
            summed: the sum over this process's elements.
            per: the elements to divide by; () = the sum over the whole batch.
        """
        numbers: dict[Unit, Tensor | int] = {
            "caption": self.captions,
            "word": self.words,
            "region": self.regions,
            "image": self.images,
        }
        mean = summed / (self.samples / process_count())
        for unit in per:
            mean = mean / numbers[unit]
        return mean

    def add_terms(
        self, value: Tensor, terms: Iterable[Term], unrolled: Unrolled, captioner: Captioner
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss with its terms, and the mean of each term without gradient, by name."""
        means = {}
        for term in terms:
            mean = self.mean(term(unrolled, captioner), term.per)
            means[term.name] = mean.detach()
            value = value + term.weight * mean
        return value, means


def count_elements(captions: CaptionBatch, unrolled: Unrolled, samples: int = 1) -> Elements:
    """Count the elements of a batch. All processes must call it.

    Args:
        captions: of this process, without repetition.
        unrolled: their unroll, whose maps give the number of regions.
        samples: number of samples of each caption in the unroll.
    """
    present = captions.lengths > 0
    regions: Tensor | int = unrolled.trace.weights.shape[-1]
    counts = torch.stack(
        [present.any(1).sum(), present.sum(), captions.lengths.sum(), present.sum() * regions]
    )
    counts = counts.to(unrolled.logits.device, non_blocking=True)
    if unrolled.real is not None:
        of_each_image = present.sum(1).to(counts.device, non_blocking=True)
        counts[3] = (unrolled.real.sum(1) * of_each_image).sum()
    counts = total(counts)
    if unrolled.real is not None:
        regions = (counts[3] / counts[1].clamp_min(1)).clamp_min(1)  # 1 without captions
    return Elements(counts[0], counts[1], counts[2], regions, samples)


def check_units(per: Sequence[Unit]) -> None:
    """Raise UserError unless all of `per` are units."""
    for unit in per:
        check_choice("per", unit, get_args(Unit))


def word_log_likelihoods(unrolled: Unrolled, targets: Tensor) -> Tensor:
    """log p(y[t] | y[<t], a) at the real steps, (N,), in nats; in float32 at least, even for logits in bf16."""
    logits = unrolled.logits
    logits = single_precision(logits)
    return -functional.cross_entropy(logits, unrolled.pack(targets), reduction="none")
