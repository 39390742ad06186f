"""The order of training: a function of seed and epoch alone, so that a stopped run goes on at any batch of an epoch."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from caption.data.batches import Batch, CaptionedImages
from caption.errors import UserError
from caption.runtime.seeds import derive_seed

Key = tuple[int, int]
"""The index of an example, and the seed of what is drawn for it in this epoch."""


class EpochBatches(BatchSampler):
    """The batches of one epoch, as keys of examples.

    Neither the state of PyTorch's generators nor the number of workers changes them.

    Args:
        batches: makes batches of what its sampler gives. The sampler knows the epoch, which Lightning sets.
        seed: of the run.
    """

    sampler: DistributedSampler[Any]

    def __init__(self, batches: BatchSampler, seed: int) -> None:
        super().__init__(batches.sampler, batches.batch_size, batches.drop_last)
        self.batches = batches
        self.seed = seed
        self.start = 0
        """Number of batches to leave out, because training had them before it was stopped."""

    def __iter__(self) -> Iterator[list[Key]]:  # type: ignore[override]
        seed = derive_seed(self.seed, self.sampler.epoch)
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            batches = list(self.batches)
        for batch in islice(batches, self.start, None):
            yield [(index, seed) for index in batch]

    def __len__(self) -> int:
        return len(self.batches)


class EpochPlace:
    """Counts the batches that a loader has given in its epoch. Lightning writes `state_dict` into checkpoints."""

    given = 0
    _restored: dict[str, int] | None = None

    @property
    def epoch(self) -> int:
        """The epoch that comes next, or runs."""
        raise NotImplementedError

    def begin(self) -> int:
        """Begin an epoch. Returns the number of batches to leave out, because training had them before it was stopped.

        Lightning sets the epoch of a resumed run only after it has called iter(): call this from a generator.
        """
        restored, self._restored = self._restored, None
        self.given = restored["given"] if restored is not None and restored["epoch"] == self.epoch else 0
        return self.given

    def state_dict(self) -> dict[str, int]:
        """The place in the epoch."""
        return {"epoch": self.epoch, "given": self.given}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on at a place in an epoch, if that epoch comes next."""
        self._restored = state


class BatchLoader(DataLoader[Any]):
    """Gives the batches of `CaptionedImages`, and raises its errors.

    A worker sends an error as a value. PyTorch would raise another one, with a traceback for its message.
    """

    def __init__(self, dataset: CaptionedImages, **options: Any) -> None:
        super().__init__(dataset, **{"collate_fn": _unchanged, **options})

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        for batch in super().__iter__():
            if isinstance(batch, UserError):
                try:
                    raise batch
                finally:  # its traceback has this frame: a circle, in which PyTorch stops its workers after 10 s
                    del batch
            yield batch


def _unchanged(batch: Batch | UserError) -> Batch | UserError:
    return batch


class TrainingLoader(EpochPlace, BatchLoader):
    """A loader that goes on inside an epoch after a restart. Batches that workers hold ready do not count."""

    batch_sampler: EpochBatches

    def __init__(self, dataset: CaptionedImages, batches: EpochBatches, **options: Any) -> None:
        super().__init__(dataset, batch_sampler=batches, **options)
        # Lightning looks here whether the examples are already divided among the processes.
        vars(self)["sampler"] = batches.sampler

    @property
    def epoch(self) -> int:
        return self.batch_sampler.sampler.epoch

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        self.batch_sampler.start = self.begin()
        for batch in super().__iter__():
            self.given += 1
            yield batch
