"""The order of training: a function of seed and epoch alone, so that a run can be resumed at any batch of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from caption.core.batch import Batch
from caption.core.errors import UserError
from caption.core.runtime.seeds import derive_seed
from caption.data.batches import CaptionedImages

Key = tuple[int, int]
"""The index of an example, and the seed of its random draws in this epoch."""
POOL = 50
"""Number of batches that are sorted by length together."""


class EpochBatches(BatchSampler):
    """The batches of one epoch, as keys of examples.

    Neither the state of PyTorch's generators nor the number of workers changes them.

    Args:
        sampler: order of the examples; under several processes, each process's share. It knows the epoch, which
            Lightning sets.
        batch_size: examples per batch.
        drop_last: leave out a last, smaller batch.
        seed: of the run.
        lengths: of all examples, for `similar_lengths`; None = batches of any lengths.
    """

    sampler: DistributedSampler[Any]

    def __init__(
        self,
        sampler: DistributedSampler[Any],
        batch_size: int,
        drop_last: bool,
        seed: int,
        lengths: Sequence[int] | None = None,
    ) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.seed = seed
        self.lengths = lengths
        self.start = 0
        """Number of batches to leave out, because training used them before it was stopped."""

    def __iter__(self) -> Iterator[list[Key]]:  # type: ignore[override]
        seed = derive_seed(self.seed, self.sampler.epoch)
        batches = super().__iter__()
        if self.lengths is not None:
            generator = torch.Generator().manual_seed(seed)
            batches = similar_lengths(
                [*self.sampler], self.lengths, self.batch_size, self.drop_last, generator
            )
        for batch in islice(batches, self.start, None):
            yield [(index, seed) for index in batch]


def similar_lengths(
    order: Sequence[int], lengths: Sequence[int], size: int, drop_last: bool, generator: torch.Generator
) -> Iterator[list[int]]:
    """Batches of captions of near-equal length, as in section 4.3 of the paper, so that little is padding.

    The examples are divided into pools of `POOL` batches. Each pool is sorted by length and cut into batches, which are
    shuffled, so that length does not depend on the time in the epoch. What `drop_last` drops is chosen before, so that
    it is not always the longest captions.
    """
    if drop_last:
        order = order[: len(order) // size * size]
    for start in range(0, len(order), POOL * size):
        pool = sorted(order[start : start + POOL * size], key=lengths.__getitem__)
        batches = [pool[i : i + size] for i in range(0, len(pool), size)]
        for i in torch.randperm(len(batches), generator=generator).tolist():
            yield batches[i]


class EpochPlace:
    """Counts the batches that a loader has yielded in its epoch. Lightning writes `state_dict` into checkpoints."""

    given = 0
    split: tuple[int, int] = (1, 1)
    """The numbers of processes, and of workers in each, among which the examples of an epoch are divided."""
    _restored: dict[str, int] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that is running, or the next one."""
        raise NotImplementedError

    def begin(self) -> int:
        """Begin an epoch. Returns the number of batches to leave out, because training used them before it was stopped.

        Lightning sets the epoch of a resumed run only after it has called iter(): call this from a generator.

        Raises:
            UserError: the examples were divided differently, so that some would be read twice and others never.
        """
        restored, self._restored = self._restored, None
        if restored is None or restored["epoch"] != self.epoch:
            self.given = 0
            return 0
        before = restored.get("processes", 0), restored.get("workers", 0)
        if before != self.split:
            stopped, now = (
                f"{processes} process{'es' * (processes != 1)}"
                + f" with data.workers {workers}" * (before[1] != self.split[1])
                for processes, workers in (before, self.split)
            )
            raise UserError(
                f"the checkpoint lies inside epoch {self.epoch + 1}, whose images were divided among {stopped}, now "
                f"among {now}: resume it with the same numbers until the epoch ends; after that both may change"
            )
        self.given = restored["given"]
        return self.given

    def state_dict(self) -> dict[str, int]:
        """The place in the epoch."""
        processes, workers = self.split
        return {"epoch": self.epoch, "given": self.given, "processes": processes, "workers": workers}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue at a place in an epoch, if that epoch is next."""
        self._restored = state


class BatchLoader(DataLoader[Any]):
    """Yields the batches of `CaptionedImages`, and raises its errors.

    A worker sends an error as a value. PyTorch would raise a different one, with a traceback as its message.
    """

    def __init__(self, dataset: CaptionedImages, **options: Any) -> None:
        super().__init__(dataset, **{"collate_fn": _unchanged, **options})

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        for batch in super().__iter__():
            if isinstance(batch, UserError):
                try:
                    raise batch
                finally:  # its traceback refers to this frame; with such a cycle PyTorch stops its workers after 10 s
                    del batch
            yield batch


def _unchanged(batch: Batch | UserError) -> Batch | UserError:
    return batch


class TrainingLoader(EpochPlace, BatchLoader):
    """A loader that can continue inside an epoch after a restart. Batches prefetched by workers are not counted."""

    batch_sampler: EpochBatches

    def __init__(self, dataset: CaptionedImages, batches: EpochBatches, **options: Any) -> None:
        super().__init__(dataset, batch_sampler=batches, **options)
        # By this attribute Lightning sees that the examples are already divided among the processes.
        vars(self)["sampler"] = batches.sampler
        self.split = (
            batches.sampler.num_replicas,
            1,
        )  # workers take batches, which do not depend on their number

    @property
    def epoch(self) -> int:
        return self.batch_sampler.sampler.epoch

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        self.batch_sampler.start = self.begin()
        for batch in super().__iter__():
            self.given += 1
            yield batch
