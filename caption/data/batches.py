"""Batches of images and captions for the training loop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from caption.core.batch import Batch, CaptionBatch
from caption.core.box import Box
from caption.core.errors import UserError
from caption.core.regions import Views
from caption.core.tensor_tree import combine, select_images
from caption.data.augmentation import HorizontalFlip, mirror
from caption.data.features.store import FeatureStore
from caption.data.photos import FittedPhoto, ImageTransform
from caption.data.splits import CaptionedImage
from caption.text.vocabulary import PAD, START, Vocabulary


class BatchItem(NamedTuple):
    """One image of a batch."""

    image: CaptionedImage
    pixels: Tensor | None
    captions: list[list[int]]
    box: Box
    mirrored: bool = False
    """Whether stored regions must be those of the mirrored image; pixels are mirrored already."""


MOST_KEPT = 100_000_000
"""A split whose pixels take at most this many bytes is kept in memory: 8,000 scenes of 64 pixels, but no photos."""


class CaptionedImages(Dataset[BatchItem]):
    """Images with some or all of their captions, decoded on access.

    Args:
        images: of one split.
        vocabulary: encodes the captions.
        transform: makes pixels of an image.
        per_image: captions drawn at random for an image each time; None = all, in order.
        max_words: captions are cut after this many words; None = never.
        single: give one caption at a time: an image with K captions occurs K times.
        store: precomputed regions; None = decode the images.
        flip: mirrors images at random; None = never.
        mirrored: precomputed regions of the mirrored images, for `store` and `flip`.
    """

    def __init__(
        self,
        images: Sequence[CaptionedImage],
        vocabulary: Vocabulary,
        transform: ImageTransform,
        per_image: int | None = None,
        max_words: int | None = None,
        single: bool = False,
        store: FeatureStore | None = None,
        flip: HorizontalFlip | None = None,
        mirrored: FeatureStore | None = None,
    ) -> None:
        self.transform = transform
        self.per_image = per_image
        self.store = store
        self.flip = flip
        self.mirrored = mirrored
        self._kept: dict[Path, FittedPhoto] = {}
        self._images = len(images)
        self.examples: list[tuple[CaptionedImage, list[list[int]]]] = []
        for image in images:
            encoded = [vocabulary.encode(text, max_words) for text in image.captions]
            self.examples += [(image, [ids]) for ids in encoded] if single else [(image, encoded)]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, key: int | tuple[int, int]) -> BatchItem:
        """An example by its index, or by index and seed. The seed decides which captions are drawn, and whether the
        image is mirrored."""
        index, seed = key if isinstance(key, tuple) else (key, int(torch.randint(2**62, ())))
        random = np.random.default_rng((seed, index))
        image, captions = self.examples[index]
        captions = draw(captions, self.per_image, random)
        mirrored = self.flip is not None and self.flip.mirrors(image.captions, random)
        if self.store is None:
            photo = self._read(image.path)
            pixels = mirror(photo.pixels) if mirrored else photo.pixels
            return BatchItem(image, pixels, captions, photo.box)
        width, height, _ = self.store.photo(image.id)
        return BatchItem(image, None, captions, self.transform.box(width, height), mirrored)

    def __getitems__(self, keys: Sequence[int | tuple[int, int]]) -> Batch | UserError:
        """A batch, or the error that prevents it, which `BatchLoader` raises. PyTorch's fetcher calls this method."""
        try:
            return collate([self[key] for key in keys], self.store, self.mirrored)
        except UserError as error:
            return error

    def _read(self, path: Path) -> FittedPhoto:
        """See `ImageTransform.read`. Small images are decoded once, in the first epoch."""
        if path in self._kept:
            return self._kept[path]
        photo = self.transform.read(path)
        if self._images * photo.pixels.numel() <= MOST_KEPT:
            self._kept[path] = photo
        return photo


def draw(captions: list[list[int]], count: int | None, random: np.random.Generator) -> list[list[int]]:
    """`count` of an image's captions in random order; all in their order if `count` is None or there are no more."""
    if count is None or count >= len(captions):
        return captions
    return [captions[k] for k in random.permutation(len(captions))[:count]]


def collate(
    examples: Sequence[BatchItem], store: FeatureStore | None = None, mirrored: FeatureStore | None = None
) -> Batch:
    """A batch of examples. Captions are padded to the longest and to the largest number per image; the regions of
    mirrored images come from `mirrored`, the others from `store`."""
    pixels = [example.pixels for example in examples if example.pixels is not None]
    return Batch(
        images=torch.stack(pixels) if pixels else None,
        views=_stored_views(examples, store, mirrored or store) if store else None,
        captions=pad_captions([example.captions for example in examples]),
        ids=[example.image.id for example in examples],
        references=[example.image.captions for example in examples],
        boxes=[example.box for example in examples],
    )


def pad_captions(captions: Sequence[Sequence[Sequence[int]]]) -> CaptionBatch:
    """A batch, padded with PAD, of up to K captions of each of B images, given as word ids with the end token."""
    steps = max(len(ids) for of_image in captions for ids in of_image)
    most = max(len(of_image) for of_image in captions)
    # NumPy writes a thousand short rows in a third of the time.
    words, targets = (np.full((len(captions), most, steps), PAD, np.int64) for _ in range(2))
    lengths = np.zeros((len(captions), most), np.int64)
    for b, of_image in enumerate(captions):
        for k, ids in enumerate(of_image):
            words[b, k, 0], words[b, k, 1 : len(ids)] = START, ids[:-1]
            targets[b, k, : len(ids)] = ids
            lengths[b, k] = len(ids)
    return CaptionBatch(torch.from_numpy(words), torch.from_numpy(targets), torch.from_numpy(lengths))


def _stored_views(examples: Sequence[BatchItem], store: FeatureStore, mirrored: FeatureStore) -> Views:
    """The regions of B examples, those of mirrored images from `mirrored`."""
    is_mirrored = np.array([example.mirrored for example in examples])
    parts = [(np.flatnonzero(~is_mirrored), store), (np.flatnonzero(is_mirrored), mirrored)]
    parts = [(rows, source) for rows, source in parts if len(rows)]
    views = [source.read_many([examples[row].image.id for row in rows.tolist()]) for rows, source in parts]
    if len(views) == 1:
        return views[0]
    order = torch.from_numpy(np.concatenate([rows for rows, _ in parts])).argsort()
    return select_images(combine(torch.cat, views), order)
