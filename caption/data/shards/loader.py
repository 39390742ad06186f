"""The loader of training batches from shards, in one or several processes with their workers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from caption.data.batches import Batch, Example, collate
from caption.data.resize import ImageTransform
from caption.data.shards.index import ShardIndex, TrainingShards
from caption.data.shards.stream import Sample, read_range, shard_ranges, share, shuffled, unpack
from caption.errors import DataError, UserError, first_few
from caption.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class ShardBatches(IterableDataset[tuple[Batch | None, list[str]]]):
    """The batches of one process in one epoch, each with the damaged samples that it lacks.

    The samples of all shards, in the epoch's order of shards, are divided into equal ranges for the processes, and
    these into ranges for the workers, so each sample is read once. A worker divides its range, after shuffling, into
    batches of fixed places. A damaged sample leaves its batch smaller; all processes make the same number of steps.
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
    """Batches to leave out, because training used them before it was stopped."""

    def samples(self, rank: int, worker: int) -> tuple[int, int]:
        """The range of one worker of a process."""
        return share(*share(0, self.index.samples, rank, self.processes), worker, self.workers)

    @property
    def batches_per_worker(self) -> int:
        """As many as the largest range needs: the same number everywhere."""
        ranges = [
            self.samples(rank, worker) for rank in range(self.processes) for worker in range(self.workers)
        ]
        return math.ceil(max(last - first for first, last in ranges) / self.batch_size)

    def __iter__(self) -> Iterator[tuple[Batch | None, list[str]]]:
        info = get_worker_info()
        # The loader takes batches from its workers in turn, beginning with the first, also after a restart.
        worker = (self.given + (0 if info is None else info.id)) % self.workers
        done = self.given // self.workers + (worker < self.given % self.workers)
        first, last = self.samples(self.rank, worker)
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self.index.shards))
        shards = [self.index.shards[number] for number in order]
        random = np.random.default_rng((self.seed, self.epoch, 1 + first))
        ranges = shard_ranges(shards, first, last)
        in_order = (sample for samples in ranges for sample in read_range(self.index, samples))
        samples = shuffled(in_order, self.source.shuffle_buffer, random)
        number = self.batches_per_worker

        def bound(place: int) -> int:
            # Rounded up, so that of more batches than samples (at batch size 1) the last one is empty, not the first.
            return -(-(last - first) * place // number)

        for _ in islice(samples, bound(done)):
            pass
        yield from self._batches(samples, first, ((bound(n), bound(n + 1)) for n in range(done, number)))

    def _batches(
        self, samples: Iterator[Sample], first: int, bounds: Iterable[tuple[int, int]]
    ) -> Iterator[tuple[Batch | None, list[str]]]:
        """Batches of the samples within these bounds. A batch without an intact sample repeats the last intact one, so
        that every process makes the same number of steps; None if none has come yet."""
        last_intact: list[Example] = []
        for begin, end in bounds:
            intact, damaged = [], []
            for place, sample in enumerate(islice(samples, end - begin), first + begin):
                try:
                    intact.append(self._example(sample, place))
                except UserError as error:
                    damaged.append(f"{sample.name}: {error}")
            last_intact = intact[-1:] or last_intact
            yield collate(intact or last_intact) if last_intact else None, damaged

    def _example(self, sample: Sample, place: int) -> Example:
        image, data = unpack(sample)
        pixels, width, height = self.transform.read(data)
        captions = [self.vocabulary.encode(text, self.max_words) for text in image.captions]
        if self.captions_per_image is not None and self.captions_per_image < len(captions):
            random = np.random.default_rng((self.seed, self.epoch, 0, place))
            captions = [captions[k] for k in random.permutation(len(captions))[: self.captions_per_image]]
        return Example(image, pixels, captions, self.transform.box(width, height))


class ShardLoader:
    """Gives the batches of an epoch, warns about damaged samples, and goes on inside an epoch after a restart.

    Lightning sets the epoch, and writes `state_dict` into checkpoints.

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
        self.sampler = self
        """Lightning calls `set_epoch` of a loader's sampler."""
        self.given = 0
        self._restored: dict[str, int] | None = None

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the epoch."""
        self.batches = replace(self.batches, epoch=epoch)

    def __len__(self) -> int:
        return self.batches.batches_per_worker * self.batches.workers

    def __iter__(self) -> Iterator[Batch]:
        # A generator, because Lightning sets the epoch of a resumed run only after it has called iter().
        restored, self._restored = self._restored, None
        epoch = self.batches.epoch
        self.given = restored["given"] if restored is not None and restored["epoch"] == epoch else 0
        # By default, the DataLoader would turn the pairs into lists.
        loader = DataLoader(
            replace(self.batches, given=self.given), batch_size=None, collate_fn=tuple, **self.options
        )
        first, last = share(0, self.batches.index.samples, self.batches.rank, self.batches.processes)
        allowed = self.batches.source.max_damaged
        skipped: list[str] = []
        for batch, damaged in loader:
            for sample in damaged:
                warnings.warn(f"skipped a damaged training sample: {sample}", stacklevel=2)
            skipped += damaged
            if batch is None or len(skipped) > allowed * (last - first):
                raise DataError(
                    f"{len(skipped)} of {last - first:,} training samples are damaged, more than the share "
                    f"data.shards.max_damaged = {allowed} allows: {first_few(skipped)}. Make these shards again with "
                    "`caption prepare shards`, or raise the share."
                )
            self.given += 1
            yield batch
        if skipped:
            warnings.warn(
                f"epoch {epoch}: {len(skipped)} of {last - first:,} training samples were damaged and skipped",
                stacklevel=2,
            )

    def state_dict(self) -> dict[str, int]:
        """The place in the epoch."""
        return {"epoch": self.batches.epoch, "given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on at a place in an epoch, if that epoch comes next."""
        self._restored = state
