"""The loader of training batches from shards, in one or several processes with their workers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from caption.core.batch import Batch
from caption.core.errors import DataError, UserError, first_few
from caption.data.batches import BatchItem, collate, draw
from caption.data.order import EpochPlace
from caption.data.photos import ImageTransform
from caption.data.shards.index import ShardIndex, TrainingShards
from caption.data.shards.stream import Sample, read_range, shard_ranges, share, shuffled, unpack
from caption.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class ShardBatches(IterableDataset[tuple[Batch | None, list[str]]]):
    """The batches of one process in one epoch, each with messages about its damaged samples.

    The samples of all shards, in the epoch's order of shards, are divided into equal ranges for the processes, and
    these into ranges for the workers, so each sample is read once. A worker divides its range, after shuffling, into
    batches of fixed places. A batch with damaged samples is smaller. A batch of damaged samples only repeats the last
    intact sample, and is None if there was none yet.
    """

    index: ShardIndex
    source: TrainingShards
    vocabulary: Vocabulary
    transform: ImageTransform
    captions_per_image: int | None
    max_words: int | None
    batch_size: int
    processes: int
    rank: int
    workers: int
    """Number of ranges in a process: the worker processes, or 1."""
    seed: int
    epoch: int = 0
    given: int = 0
    """Number of the process's batches that training used before it was stopped; they are None."""

    def samples(self, rank: int, worker: int) -> tuple[int, int]:
        """The range of one worker of a process."""
        return share(*share(0, self.index.samples, rank, self.processes), worker, self.workers)

    @property
    def batches_per_worker(self) -> int:
        """The batches that the largest range needs, the same number for every worker."""
        ranges = [
            self.samples(rank, worker) for rank in range(self.processes) for worker in range(self.workers)
        ]
        return math.ceil(max(last - first for first, last in ranges) / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Batch | None, list[str]]]:
        info = get_worker_info()
        worker = 0 if info is None else info.id
        first, last = self.samples(self.rank, worker)
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.index.shards))
        ranges = shard_ranges([self.index.shards[number] for number in order], first, last)
        in_order = (sample for samples in ranges for sample in read_range(self.index, samples))
        random = np.random.default_rng((self.seed, self.epoch, 1 + first))
        samples = enumerate(shuffled(in_order, self.source.shuffle_buffer, random), first)
        # Rounded up: with more batches than samples (at batch size 1) the last batch is empty, not the first.
        number = self.batches_per_worker
        sizes = np.diff([-(-(last - first) * place // number) for place in range(number + 1)])
        last_intact: list[BatchItem] = []
        for place, size in enumerate(sizes.tolist()):
            intact, damaged = [], []
            for position, sample in islice(samples, size):
                # The loader takes batches from its workers in turn.
                if place * self.workers + worker < self.given:
                    continue
                try:
                    intact.append(self._example(sample, position))
                except UserError as error:
                    damaged.append(f"{sample.name}: {error}")
            # Without an intact sample, repeat the last one: every process must make the same number of steps.
            last_intact = intact[-1:] or last_intact
            yield collate(intact or last_intact) if last_intact else None, damaged

    def _example(self, sample: Sample, place: int) -> BatchItem:
        image, data = unpack(sample)
        photo = self.transform.read(data)
        captions = [self.vocabulary.encode(text, self.max_words) for text in image.captions]
        random = np.random.default_rng((self.seed, self.epoch, 0, place))
        captions = draw(captions, self.captions_per_image, random)
        return BatchItem(image, photo.pixels, captions, photo.box)


class ShardLoader(EpochPlace):
    """Yields the batches of an epoch, warns about damaged samples, and can continue inside an epoch after a restart.

    After a restart, the samples that training has already used are read again, but not decoded.

    Args:
        batches: of this process.
        options: of the DataLoader with the workers.

    Raises:
        DataError: there are fewer samples than workers in all processes.
    """

    def __init__(self, batches: ShardBatches, **options: Any) -> None:
        least = batches.index.samples // batches.processes // batches.workers
        if least < 1:
            raise DataError(
                f"'{batches.index.location}' has {batches.index.samples} samples, too few for {batches.processes} "
                f"processes with {batches.workers} workers each: lower data.workers"
            )
        self.batches = batches
        self.options = options
        self.split = batches.processes, batches.workers
        self.sampler = self
        """Lightning calls `set_epoch` of a loader's sampler."""

    @property
    def epoch(self) -> int:
        return self.batches.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which decides the order."""
        self.batches = replace(self.batches, epoch=epoch)

    def __len__(self) -> int:
        return self.batches.batches_per_worker * self.batches.workers

    def __iter__(self) -> Iterator[Batch]:
        batches = replace(self.batches, given=self.begin())
        # By default, the DataLoader would turn the pairs into lists.
        loader = DataLoader(batches, batch_size=None, collate_fn=tuple, **self.options)
        first, last = share(0, batches.index.samples, batches.rank, batches.processes)
        allowed = batches.source.max_damaged
        skipped: list[str] = []
        for batch, damaged in islice(loader, batches.given, None):
            for sample in damaged:
                warnings.warn(f"skipped a damaged training sample: {sample}", stacklevel=2)
            skipped += damaged
            if batch is None or len(skipped) > allowed * (last - first):
                raise DataError(
                    f"{len(skipped)} of {last - first:,} training samples are damaged, more than the share "
                    f"data.shards.max_damaged = {allowed} allows: {first_few(skipped)}. Make these shards again with "
                    "`caption shards`, or raise the share."
                )
            self.given += 1
            yield batch
        if skipped:
            warnings.warn(
                f"epoch {batches.epoch}: {len(skipped)} of {last - first:,} training samples were damaged and skipped",
                stacklevel=2,
            )
