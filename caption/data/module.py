"""The Lightning data module: one reader, one vocabulary, one transform, three splits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler

from caption.core.batch import Batch
from caption.core.errors import DataError
from caption.core.runtime.seeds import derive_seed
from caption.core.runtime.signals import ignore_stop_signals
from caption.core.tensor_tree import map_tensors
from caption.data.augmentation import HorizontalFlip
from caption.data.batches import CaptionedImages
from caption.data.features.store import FeatureStore
from caption.data.order import BatchLoader, EpochBatches, TrainingLoader
from caption.data.photos import ImageTransform
from caption.data.readers.base import MAX_CHARACTERS, CaptionReader
from caption.data.shards import ShardBatches, ShardIndex, ShardLoader, TrainingShards
from caption.data.splits import Splits
from caption.text.vocabulary import Vocabulary

MOST_WORKERS = 256
"""Limit of the processes that decode images."""
LARGEST_BATCH = 100_000


class CaptionData(LightningDataModule):
    """Images and captions in batches.

    A batch has `batch_size` images with `captions_per_image` of their captions each; with `batching: lengths`, it has
    `batch_size` single captions of similar length, as in the paper. Data is read and checked at construction.

    Args:
        reader: where images, captions and splits come from.
        transform: makes pixels of an image.
        batch_size: images per batch (captions, with `batching: lengths`).
        captions_per_image: how many of an image's captions a training batch has, drawn at random each time; None = all.
        batching: "images" or "lengths".
        min_count: words rarer than this in the training captions become the unknown word.
        vocabulary_size: at most this many of the most frequent words are kept, special tokens not counted; None = all.
        tokenizer: name of the tokenizer that splits captions into words.
        max_words: training captions are cut after this many words; None = never.
        features: folder of precomputed regions (`caption features`); None = encode images each time.
        workers: processes that decode images.
        predict_split: the split that `caption predict` captions.
        vocabulary: use this one instead of counting the training split, for data of another model.
        shards: read the training split from WebDataset shards; the reader then gives the other splits.
        flip: mirrors training images at random; None = never. With `features` it needs `flip.features`; not for
            `shards`.
    """

    def __init__(
        self,
        reader: CaptionReader,
        transform: ImageTransform | None = None,
        batch_size: int = 64,
        captions_per_image: int | None = None,
        batching: Literal["images", "lengths"] = "images",
        min_count: int = 5,
        vocabulary_size: int | None = None,
        tokenizer: str = "ptb",
        max_words: int | None = None,
        features: str | None = None,
        workers: int = 0,
        predict_split: Literal["train", "val", "test"] = "test",
        vocabulary: Vocabulary | None = None,
        shards: TrainingShards | None = None,
        flip: HorizontalFlip | None = None,
    ) -> None:
        super().__init__()
        _check_flip(flip, features, shards)
        for name, value, least, most in (
            ("batch_size", batch_size, 1, LARGEST_BATCH),
            ("captions_per_image", captions_per_image, 1, LARGEST_BATCH),
            ("max_words", max_words, 1, MAX_CHARACTERS),
            ("workers", workers, 0, MOST_WORKERS),
        ):
            if value is not None and not least <= value <= most:
                raise DataError(f"data.{name} is {value}: choose {least} to {most:,}")
        self.reader = reader
        self.transform = transform or ImageTransform()
        self.batch_size = batch_size
        self.captions_per_image = captions_per_image
        self.batching = batching
        self.max_words = max_words
        self.store = None if features is None else FeatureStore(features)
        self.workers = workers
        self.predict_split = predict_split
        self.seed = torch.initial_seed()
        self.flip = flip
        self.mirrored = None if flip is None or flip.features is None else FeatureStore(flip.features)
        self.splits: Splits = reader.read()
        if self.store is not None:
            paths = {image.id: image.path for images in self.splits.values() for image in images}
            self.store.check([*paths])
            self.store.check_photos(paths)
        if self.mirrored is not None:
            paths = {image.id: image.path for image in self.splits.get("train", ())}
            self.mirrored.check([*paths])
            self.mirrored.check_photos(paths)
        self.shards = shards
        if shards is not None:
            if features is not None or batching != "images":
                raise DataError(
                    "data.shards reads images in any order: leave out data.features and data.batching"
                )
            self.splits.pop("train", None)
            self.shard_index = ShardIndex.read(shards.url)
        self.vocabulary = vocabulary or self._count_words(min_count, tokenizer, vocabulary_size)

    def _count_words(self, min_count: int, tokenizer: str, size: int | None) -> Vocabulary:
        if self.shards is not None:
            return self.shard_index.vocabulary(min_count, tokenizer, size)
        if "train" not in self.splits:
            raise DataError("the data has no training split, from which the vocabulary is counted")
        captions = (text for image in self.splits["train"] for text in image.captions)
        return Vocabulary.build(captions, min_count, tokenizer, size)

    def training_captions(self) -> Iterator[list[list[int]]]:
        """For each training image, the word ids of its captions, with the end token.

        Raises:
            DataError: the training captions are in shards.
        """
        if self.shards is not None:
            raise DataError(
                "this objective needs all training captions before training, which data.shards does not give: "
                "train on the images themselves"
            )
        for image in self.splits["train"]:
            yield [self.vocabulary.encode(text, self.max_words) for text in image.captions]

    def train_dataloader(self) -> DataLoader[Any] | ShardLoader:
        """Batches of the training split, or of the shards, in an order that depends on seed and epoch."""
        if self.shards is not None:
            return self._shard_loader(self.shards)
        single = self.batching == "lengths"
        images = self._images(
            "train",
            per_image=self.captions_per_image,
            max_words=self.max_words,
            single=single,
            flip=self.flip,
            mirrored=self.mirrored,
        )
        processes, rank = self._processes()
        order: DistributedSampler[Any] = DistributedSampler(
            images, processes, rank, seed=derive_seed(self.seed)
        )
        drop_last = len(order) >= self.batch_size  # unless it is the only batch
        lengths = [len(captions[0]) for _, captions in images.examples] if single else None
        batches = EpochBatches(order, self.batch_size, drop_last, self.seed, lengths)
        return TrainingLoader(images, batches, **self._loading())

    def _processes(self) -> tuple[int, int]:
        """The number of processes, and the rank of this one. All processes use the seed of the first."""
        if self.trainer is None:
            return 1, 0
        self.seed = self.trainer.strategy.broadcast(self.seed)
        return self.trainer.world_size, self.trainer.global_rank

    def state_dict(self) -> dict[str, Any]:
        """The seed, which Lightning writes into checkpoints, so that a resumed run has the order of the stopped one."""
        return {"seed": self.seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seed = state["seed"]

    def _shard_loader(self, shards: TrainingShards) -> ShardLoader:
        processes, rank = self._processes()
        batches = ShardBatches(
            self.shard_index,
            shards,
            self.vocabulary,
            self.transform,
            self.captions_per_image,
            self.max_words,
            self.batch_size,
            processes,
            rank,
            workers=max(self.workers, 1),
            seed=self.seed,
        )
        # Each epoch has a new data set, and therefore new workers.
        return ShardLoader(batches, **self._loading() | {"persistent_workers": False})

    def val_dataloader(self) -> DataLoader[Any]:
        return self._evaluation("val")

    def test_dataloader(self) -> DataLoader[Any]:
        return self._evaluation("test")

    def predict_dataloader(self) -> DataLoader[Any]:
        return self._evaluation(self.predict_split)

    def _evaluation(self, split: str) -> DataLoader[Any]:
        images = self._images(split)
        processes, rank = self._processes()
        # Lightning's own sampler for predictions refuses fewer images than processes; this one repeats some.
        order: Any = DistributedSampler(images, processes, rank, shuffle=False) if processes > 1 else None
        # By keyword: Lightning makes the loader again for prediction, and cannot with a positional batch size.
        return BatchLoader(images, sampler=order, batch_size=self.batch_size, **self._loading())

    def _images(self, split: str, **options: Any) -> CaptionedImages:
        """The images of a split; for the options see `CaptionedImages`."""
        if split not in self.splits:
            remedy = "give it some of the images, such as with data.reader.init_args.fractions {train: 0.9, val: 0.1}"
            if split == "val":
                remedy += ", or train without validation (--trainer.limit_val_batches 0)"
            raise DataError(f"the data has no split {split!r}, only {', '.join(self.splits)}: {remedy}")
        return CaptionedImages(
            self.splits[split], self.vocabulary, self.transform, store=self.store, **options
        )

    def _loading(self) -> dict[str, Any]:
        trainer = self.trainer
        return {
            "num_workers": self.workers,
            "persistent_workers": self.workers > 0,
            "pin_memory": trainer is not None and type(trainer.accelerator).__name__ == "CUDAAccelerator",
            "worker_init_fn": ignore_stop_signals,
        }

    def transfer_batch_to_device(self, batch: Batch, device: Any, dataloader_idx: int) -> Batch:
        """Moves the tensors; stored regions become single precision. Lengths, names, references and boxes stay."""

        def move(tensor: Tensor) -> Tensor:
            tensor = tensor.to(device, non_blocking=True)
            return tensor.float() if tensor.dtype is torch.float16 else tensor

        images, views, captions, *metadata = batch
        moved = Batch(*map_tensors(move, (images, views, captions)), *metadata)
        return moved._replace(captions=moved.captions._replace(lengths=captions.lengths))


def _check_flip(flip: HorizontalFlip | None, features: str | None, shards: TrainingShards | None) -> None:
    if flip is None:
        return
    if shards is not None:
        raise DataError("data.flip mirrors the reader's images: leave out data.shards, or data.flip")
    if (features is None) != (flip.features is None):
        raise DataError(
            "data.features has regions of the images as they are, and data.flip.features of mirrored training images "
            "(`caption features --mirrored`): name both, or neither"
        )
